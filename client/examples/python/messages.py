"""Prints a message as it comes, checked by `affidavit proxy`. Nothing but Python's own library.

    npx affidavit proxy --url https://gateway.example --policy policy.json
    python3 messages.py http://127.0.0.1:8787/v1 "$KEY" 'Who are you?'
"""

import http.client
import json
import sys
from urllib.parse import urlsplit

base_url, api_key, prompt = sys.argv[1:4]
address = urlsplit(base_url)
connection = http.client.HTTPConnection(address.hostname, address.port)
messages = [{"role": "user", "content": prompt}]
request = {"model": "demo/echo", "max_tokens": 1000, "stream": True, "messages": messages}
headers = {"x-api-key": api_key, "anthropic-version": "2023-06-01", "content-type": "application/json"}
connection.request("POST", f"{address.path}/messages", json.dumps(request), headers)
response = connection.getresponse()
if response.status != 200:
    sys.exit(json.load(response)["error"]["message"])

last = None
for line in response:
    if not line.startswith(b"data: "):
        continue
    event = json.loads(line[len(b"data: ") :])
    last = event["type"]
    if last == "content_block_delta" and event["delta"]["type"] == "text_delta":
        print(event["delta"]["text"], end="", flush=True)
    if last == "error":
        sys.exit(event["error"]["message"])
print()
# If the last event is missing, the answer was not checked.
if last != "message_stop":
    sys.exit("the answer was cut")
