"""Writes the result of a command as a JUnit file of one test case, for tests/count_results.py.

    python3 tests/report_case.py SUITE CASE STATUS LOG FILE.xml

STATUS is the exit status of the command: 0 passed, 77 skipped with the last line of LOG as the reason, any other failed; then LOG is
printed.
"""
import sys
import xml.etree.ElementTree as ElementTree

suite_name, case_name, status, log_path, xml_path = sys.argv[1:]
log = open(log_path, encoding="utf-8", errors="replace").read()
root = ElementTree.Element("testsuites")
suite = ElementTree.SubElement(root, "testsuite", name=suite_name)
case = ElementTree.SubElement(suite, "testcase", classname=suite_name, name=case_name)
if status == "77":
    ElementTree.SubElement(case, "skipped", message=log.strip().splitlines()[-1] if log.strip() else "no reason")
elif status != "0":
    ElementTree.SubElement(case, "failure", message=f"ended with {status}")
    print(log)
ElementTree.ElementTree(root).write(xml_path, encoding="utf-8", xml_declaration=True)
with open(xml_path[:-len(".xml")] + ".status", "w", encoding="utf-8") as file:
    file.write("0\n" if status in ("0", "77") else f"{status}\n")
