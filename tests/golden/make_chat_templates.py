#!/usr/bin/env python3
"""Writes chat_templates.json: what jinja2, set up as transformers does it, makes of the cases of
chat_template_cases.py.

    pip install transformers==5.17.0 Jinja2==3.1.6
    python tests/golden/make_chat_templates.py

{"now", "variables", "cases"}: a case has "template" (source) or "file" (of chat_templates/), "variables" unless they
are the shared ones, and "text", or "error" and "at" ("load" or "render").
"""

import json
from pathlib import Path

from chat_template_cases import NOW, TEMPLATES, VARIABLES, cases, render

OUTPUT = Path(__file__).resolve().parent / "chat_templates.json"


def main():
    out = []
    for name, template, variables in cases():
        case = {"name": name, ("file" if template in TEMPLATES else "template"): template}
        if variables is not VARIABLES:
            case["variables"] = variables
        out.append({**case, **render(TEMPLATES.get(template, template), variables)})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in out)
    shared = json.dumps(VARIABLES, ensure_ascii=False)
    OUTPUT.write_text(f'{{"now": {NOW}, "variables": {shared}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
