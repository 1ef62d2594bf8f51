// Run by tests/analysis/browser.py in a page: every text with its contrast, what is cut off, and what overlaps.
const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1]; };
const over = (top, under) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * under[i]).concat(1);
const light = (c) => { const f = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const behind = (node) => { const chain = []; for (let n = node; n; n = n.parentElement) chain.push(n);
  return chain.reverse().reduce((c, n) => over(parse(getComputedStyle(n).backgroundColor), c), [255, 255, 255, 1]); };
const opacity = (node, end) => { let o = 1; for (let n = node; n && n !== end; n = n.parentElement) o *= Number(getComputedStyle(n).opacity); return o; };
const shapes = (text) => { // the colours under the middle of a word in a picture, in the order in which they are painted
  const svg = text.ownerSVGElement, box = text.getBoundingClientRect(); let c = behind(svg.parentElement);
  for (const n of svg.querySelectorAll("rect, path, circle, text")) {
    if (n === text) break;
    if (n.tagName === "text") continue;
    const s = getComputedStyle(n); if (s.fill === "none") continue;
    const p = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2).matrixTransform(n.getScreenCTM().inverse());
    if (!n.isPointInFill(p)) continue;
    const f = parse(s.fill); f[3] *= Number(s.fillOpacity) * opacity(n, svg); c = over(f, c);
  }
  return c; };
const found = { width: document.documentElement.scrollWidth, room: window.innerWidth, texts: [], cut: [], overlaps: [] };
const seen = (n) => n.checkVisibility() && n.getBoundingClientRect().width > 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const words = [];
while (walker.nextNode()) {
  const node = walker.currentNode, holder = node.parentElement;
  if (!node.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT", "title"].includes(holder.tagName) || !seen(holder)) continue;
  const inside = holder.closest("svg");
  const range = document.createRange(); range.selectNodeContents(node);
  const lines = inside ? [holder.getBoundingClientRect()] : [...range.getClientRects()].filter((r) => r.width > 0);
  const style = getComputedStyle(holder);
  const under = inside ? shapes(holder) : behind(holder);
  const colour = over((() => { const c = parse(inside ? style.fill : style.color); c[3] *= opacity(holder, null); return c; })(), under);
  found.texts.push({ text: node.data.trim().slice(0, 40), contrast: contrast(colour, under) });
  lines.forEach((box) => words.push({ text: node.data.trim().slice(0, 30), box }));
  if (lines.some((box) => box.left < -0.5 || box.right > window.innerWidth + 0.5)) found.cut.push(node.data.trim());
  if (inside) { const b = inside.getBoundingClientRect(), box = lines[0];
    if (box.left < b.left - 1.5 || box.right > b.right + 1.5 || box.top < b.top - 2 || box.bottom > b.bottom + 2) found.cut.push("in a picture: " + node.data.trim()); }
  else if (holder.scrollWidth > holder.clientWidth + 1 && holder.clientWidth > 0 && style.display !== "inline") found.cut.push("in its box: " + node.data.trim());
}
const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
for (let i = 0; i < words.length; i++) for (let j = i + 1; j < words.length; j++) if (meet(words[i].box, words[j].box)) found.overlaps.push(words[i].text + " / " + words[j].text);
const boxes = [...document.querySelectorAll(".part, .player, .top, .legend, details, .run > header")].filter(seen);
for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
  if (boxes[i].contains(boxes[j]) || boxes[j].contains(boxes[i])) continue;
  const sticky = [boxes[i], boxes[j]].some((n) => n.matches(".player"));
  if (!sticky && meet(boxes[i].getBoundingClientRect(), boxes[j].getBoundingClientRect())) found.overlaps.push(boxes[i].className + " / " + boxes[j].className);
}
return found;
