"""An accessibility checker: rules of WCAG 2.2 that can be read from HTML and CSS alone."""

import re
from html.parser import HTMLParser

_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}
_CONTROLS = {"input", "select", "textarea"}


class Checker(HTMLParser):
    """Collects `problems` of a page, each with the rule that it breaks."""

    def __init__(self, page):
        super().__init__()
        self.problems, self.identifiers, self.references = [], [], []
        self.stack, self.levels, self.title, self.language = [], [], "", ""
        self.label_targets, self.control_names = set(), []
        self.feed(page)
        self.close()
        self._finish()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        element = {"tag": tag, "attributes": attributes, "text": ""}
        if tag not in _VOID:
            self.stack.append(element)
        self.identifiers += [attributes["id"]] if "id" in attributes else []
        for name in ("aria-labelledby", "aria-describedby", "aria-controls"):
            self.references += (attributes.get(name) or "").split()
        if tag == "html":
            self.language = attributes.get("lang", "")
        if tag == "img" and "alt" not in attributes:
            self._problem("1.1.1 images have a text alternative", tag, attributes)
        if attributes.get("role") == "img" and not attributes.get("aria-label"):
            self._problem("1.1.1 drawings have a label", tag, attributes)
        if tag == "iframe" and not attributes.get("title"):
            self._problem("4.1.2 frames have a title", tag, attributes)
        if int(attributes.get("tabindex") or 0) > 0:
            self._problem("2.4.3 the order of focus is that of the page", tag, attributes)
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "th" and "scope" not in attributes:
            self._problem("1.3.1 headings of tables have a scope", tag, attributes)
        if tag == "label" and "for" in attributes:
            self.label_targets.add(attributes["for"])
        if tag in _CONTROLS and attributes.get("type") != "hidden":
            inside = any(e["tag"] == "label" for e in self.stack)
            named = inside or "aria-label" in attributes or "aria-labelledby" in attributes
            self.control_names.append((named, tag, attributes))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_data(self, data):
        for element in self.stack:
            element["text"] += data

    def handle_endtag(self, tag):
        while self.stack:
            element = self.stack.pop()
            if element["tag"] == tag:
                break
        else:
            return
        attributes, text = element["attributes"], element["text"].strip()
        if tag == "title":
            self.title = self.title or text
        named = text or attributes.get("aria-label") or attributes.get("title")
        pictures = tag in ("a", "button") and attributes.get("title")
        # Content that a script fills in has an identifier, and is checked in the browser.
        filled = "hidden" in attributes or attributes.get("id")
        if tag in ("a", "button", "summary") and not (named or pictures or filled):
            self._problem("4.1.2 links and buttons have a name", tag, attributes)

    def _finish(self):
        if not self.language:
            self._problem("3.1.1 the language is stated", "html", {})
        if not self.title:
            self._problem("2.4.2 the page has a title", "title", {})
        if self.levels[:1] != [1]:
            self._problem("1.3.1 headings begin with level 1", "h1", {})
        for before, after in zip(self.levels, self.levels[1:], strict=False):
            if after > before + 1:
                self._problem(f"1.3.1 no level between h{before} and h{after}", "h", {})
        repeated = {i for i in self.identifiers if self.identifiers.count(i) > 1}
        self.problems += [f"4.1.1 identifier {i!r} stands once" for i in sorted(repeated)]
        missing = set(self.references) - set(self.identifiers)
        self.problems += [f"1.3.1 {i!r} is an identifier of the page" for i in sorted(missing)]
        for named, tag, attributes in self.control_names:
            if not named and attributes.get("id") not in self.label_targets:
                self._problem("4.1.2 controls have a label", tag, attributes)

    def _problem(self, rule, tag, attributes):
        self.problems.append(f"{rule}: <{tag} {attributes}>")


def themes(css):
    """The colors of a style sheet by name, in light and in dark mode."""
    light, dark = re.findall(r":root \{([^}]*)\}", css)[:2]

    def colors(text):
        return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", text))

    return {"light": colors(light), "dark": {**colors(light), **colors(dark)}}


def contrast(first, second):
    """Contrast of two colors, 1 to 21.

    Source: WCAG 2.2, relative luminance and contrast ratio.
    """

    def luminance(color):
        channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted(map(luminance, (first, second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)
