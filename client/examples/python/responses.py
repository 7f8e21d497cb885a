"""Prints a response as it comes, checked by `affidavit proxy`. Nothing but Python's own library.

    npx affidavit proxy --url https://gateway.example --policy policy.json
    python3 responses.py http://127.0.0.1:8787/v1 "$KEY" 'Who are you?'
"""

import http.client
import json
import sys
from urllib.parse import urlsplit

base_url, api_key, prompt = sys.argv[1:4]
address = urlsplit(base_url)
connection = http.client.HTTPConnection(address.hostname, address.port)
request = {"model": "demo/echo", "stream": True, "input": prompt}
headers = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}
connection.request("POST", f"{address.path}/responses", json.dumps(request), headers)
response = connection.getresponse()
if response.status != 200:
    sys.exit(json.load(response)["error"]["message"])

last = None
for line in response:
    if not line.startswith(b"data: "):
        continue
    event = json.loads(line[len(b"data: ") :])
    last = event["type"]
    if last == "response.output_text.delta":
        print(event["delta"], end="", flush=True)
    if last == "response.failed":
        sys.exit(event["response"]["error"]["message"])
print()
# If the last event is missing, the answer was not checked.
if last not in ("response.completed", "response.incomplete"):
    sys.exit("the answer was cut")
