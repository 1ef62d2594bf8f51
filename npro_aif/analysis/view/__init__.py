"""One episode as a page: what was true, believed and planned at every step, in a single HTML file.

``data`` turns a recording into plain numbers, ``drawing`` says how a world looks, ``worlds`` draws ours, and ``page``
puts numbers, style and script into the file.
"""
