"""Prints an answer as it comes, checked by `affidavit proxy`. Nothing but Python's own library.

    npx affidavit proxy --url https://gateway.example --policy policy.json
    python3 stream.py http://127.0.0.1:8787/v1 "$KEY" 'Who are you?'
"""

import http.client
import json
import sys
from urllib.parse import urlsplit

base_url, api_key, prompt = sys.argv[1:4]
address = urlsplit(base_url)
connection = http.client.HTTPConnection(address.hostname, address.port)
request = {"model": "demo/echo", "stream": True, "messages": [{"role": "user", "content": prompt}]}
headers = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}
connection.request("POST", f"{address.path}/chat/completions", json.dumps(request), headers)
response = connection.getresponse()
if response.status != 200:
    sys.exit(json.load(response)["error"]["message"])

is_checked = False
for line in response:
    if not line.startswith(b"data: "):
        continue
    data = line[len(b"data: ") :].strip()
    if data == b"[DONE]":
        is_checked = True
        break
    chunk = json.loads(data)
    if "error" in chunk:
        sys.exit(chunk["error"]["message"])
    for choice in chunk["choices"]:
        print(choice["delta"].get("content") or "", end="", flush=True)
print()
# If the end of the stream is missing, the answer was not checked.
if not is_checked:
    sys.exit("the answer was cut")
