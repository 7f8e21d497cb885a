import { execFileSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type SampleCall, writeSample } from '#src/web/docs/samples.ts'
import { folderOfFile } from '../../../support/folders.ts'
import { needNo, needProgram } from '../../../support/needs.ts'

const folder = folderOfFile()

const HOSTILE = `'; touch x #"\`$(id)\${id}\\\n%!\u2028\u2029</script>\u202e`
const text = fc.oneof(fc.constant(HOSTILE), fc.string({ unit: 'grapheme', maxLength: 40 }))
const json = fc.jsonValue({ maxDepth: 2 }).map((value) => JSON.stringify(value, null, 2))
const sampleCall: fc.Arbitrary<SampleCall> = fc.record({
  // As the page writes it: by URL, which escapes what a URL cannot contain.
  url: text.map((word) => `https://gateway.example/v1/log/${encodeURIComponent(word)}?a={b}[1]`),
  method: fc.constantFrom('GET', 'POST', 'DELETE'),
  hasKey: fc.boolean(),
  headers: fc.record({ 'idempotency-key': text.map((word) => word.replaceAll(/[^ -~]/g, '')) }),
  body: fc.option(json),
  form: fc.constant(null),
})

const calls = fc.sample(sampleCall, { numRuns: 40, seed: 7 })
const environment = { ...process.env, AFFIDAVIT_API_KEY: 'sk-test' }

/** What each sample asks for: URL, method, headers, body. */
function expected({ url, method, hasKey, headers, body }: SampleCall) {
  return {
    url,
    method,
    headers: {
      ...(hasKey ? { authorization: 'Bearer sk-test' } : {}),
      ...(body === null ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    body: body === null ? null : JSON.parse(body),
  }
}

const PYTHON = needProgram('python3')
const SHELL = needNo(process.platform === 'win32' ? 'a POSIX shell' : null)

describe('samples send exactly the values of their call, for any text', () => {
  it.runIf(SHELL.isMet)(SHELL.title('samples for a shell say what they are made of'), () => {
    const curl = join(folder, 'curl')
    writeFileSync(
      curl,
      `#!${process.execPath}\nconsole.log(JSON.stringify(process.argv.slice(2)))\n`,
    )
    chmodSync(curl, 0o755)
    const script = calls.map((call) => writeSample('curl', call)).join('\n')
    const output = execFileSync('/bin/sh', ['-eu'], {
      input: script,
      cwd: folder,
      encoding: 'utf8',
      env: { ...environment, PATH: `${folder}${delimiter}${process.env.PATH}` },
    })
    const asked = output
      .trim()
      .split('\n')
      .map((line) => readArguments(JSON.parse(line)))
    expect(asked).toEqual(calls.map(expected))
  })

  it('samples for Node say what they are made of', async () => {
    for (const call of calls) {
      let asked: unknown = null
      const fetch = async (url: string, options: RequestInit = {}) => {
        const { method = 'GET', headers = {}, body = null } = options
        asked = { url, method, headers, body: body === null ? null : JSON.parse(String(body)) }
        return new Response('')
      }
      const run = Function(
        ...['fetch', 'console', 'process'],
        `return (async () => {${writeSample('Node', call)}\n})()`,
      )
      await run(fetch, { log: () => undefined }, { env: environment })
      expect(asked).toEqual(expected(call))
    }
  })

  it.runIf(PYTHON.isMet)(PYTHON.title('samples for Python say what they are made of'), () => {
    writeFileSync(join(folder, 'requests.py'), REQUESTS)
    const output = execFileSync('python3', ['-'], {
      input: calls.map((call) => writeSample('Python', call)).join('\n'),
      cwd: folder,
      encoding: 'utf8',
      env: { ...environment, PYTHONPATH: folder, PYTHONIOENCODING: 'utf-8' },
    })
    const asked = output
      .trim()
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line))
    expect(asked).toEqual(calls.map(expected))
  })
})

/** Stands for the package: says what it was asked. */
const REQUESTS = `
import json

class Response:
    status_code = 0
    text = ''

def request(method, url, headers={}, data=None):
    body = None if data is None else json.loads(data.decode())
    print(json.dumps({'url': url, 'method': method, 'headers': headers, 'body': body}))
    return Response()
`

function readArguments(given: readonly string[]) {
  const headers: Record<string, string> = {}
  const asked = { url: '', method: 'GET', headers, body: null as unknown }
  for (let at = 0; at < given.length; at++) {
    const [option, value = ''] = given.slice(at)
    if (option === '-g') continue
    if (option === '-X') asked.method = value
    else if (option === '-H')
      headers[value.split(': ', 1)[0] ?? ''] = value.slice(value.indexOf(': ') + 2)
    else if (option === '--data-raw') asked.body = JSON.parse(value)
    else {
      asked.url = option ?? ''
      continue
    }
    at++
  }
  return asked
}
