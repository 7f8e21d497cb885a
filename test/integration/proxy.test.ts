import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { createConnection } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Affidavit as Client, connect } from '#client/index.ts'
import { type CheckingProxy, type ProxiedCall, serveProxy } from '#src/cli/proxy/serve-proxy.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { rewriting } from '../support/gateway-attacks/attack-case.ts'
import { type HostileGateway, startHostileGateway } from '../support/hostile-gateway.ts'
import { needProgram } from '../support/needs.ts'
import { startProxyProgram } from '../support/proxy-program.ts'
import { runProcess } from '../support/run-cli.ts'
import { until } from '../support/until.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const CLI = join(import.meta.dirname, '../../src/cli/main.ts')
const PYTHON = needProgram('python3')
const PYTHON_FOLDER = join(import.meta.dirname, '../../client/examples/python')
const SCRIPTS = ['stream.py', 'responses.py', 'messages.py']

let service: SharedAffidavit
let expected: Awaited<ReturnType<typeof readExpectedService>>
beforeAll(async () => {
  service = await useAffidavit()
  expected = await readExpectedService(service)
})

let prompts = 0
/** A request that is unique. */
const ask = (more: object = {}) => ({
  model: 'demo/echo',
  messages: [{ role: 'user' as const, content: `proxy ${++prompts}: pay Ann 5` }],
  ...more,
})

/** A proxy in this process, and the lines that it would print. */
async function startProxy(
  client: Client,
): Promise<CheckingProxy & { readonly calls: ProxiedCall[] }> {
  const calls: ProxiedCall[] = []
  const proxy = await serveProxy({
    affidavit: client,
    port: 0,
    onCall: (call) => void calls.push(call),
  })
  return { ...proxy, calls }
}

const post = (proxy: Pick<CheckingProxy, 'baseURL'>, body: object, more: RequestInit = {}) =>
  fetch(`${proxy.baseURL}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify(body),
    ...more,
  })

describe('the proxy before an honest gateway', () => {
  let proxy: Awaited<ReturnType<typeof startProxy>>
  beforeAll(async () => {
    const { connect: options } = expected
    // Encrypted, by default.
    proxy = await startProxy(await connect({ url: service.url, ...options }))
  })
  afterEach(() => void proxy.calls.splice(0))
  afterAll(() => proxy.close())

  const openai = () => new OpenAI({ baseURL: proxy.baseURL, apiKey: service.apiKey })
  const said = () => `[demonstration] You said: proxy ${prompts}: pay Ann 5`

  it('the proxy gives the openai package whole answers, streams and models', async () => {
    const whole = await openai().chat.completions.create(ask())
    expect(whole.choices[0]?.message.content).toBe(said())
    const stream = openai().chat.completions.stream(ask())
    const { choices } = await stream.finalChatCompletion()
    expect(choices[0]?.message.content).toBe(said())
    const models = []
    for await (const { id } of openai().models.list()) models.push(id)
    expect(models).toContain('demo/echo')
    expect(proxy.calls.map(({ verdict, model }) => [verdict, model])).toEqual([
      ['checked', 'demo/echo'],
      ['checked', 'demo/echo'],
    ])
    for (const { proof } of proxy.calls) expect(proof?.receipt).toMatchObject({ encrypted: true })
  })

  it('the proxy answers many calls at once, each with its own answer', async () => {
    const texts = await Promise.all(
      Array.from({ length: 20 }, async (_, call) => {
        const request = ask({ stream: call % 2 === 0 })
        const text = await (await post(proxy, request)).text()
        return [request.messages[0]?.content, text] as const
      }),
    )
    for (const [asked, text] of texts) {
      const [, number = ''] = /proxy (\d+)/.exec(asked ?? '') ?? []
      expect(text.replaceAll(/"\}.*\s+.*"content":"/g, '')).toContain(number)
    }
    await until('all are over', () => proxy.calls.length === 20)
    expect(new Set(proxy.calls.map(({ proof }) => proof?.hash)).size).toBe(20)
    // Each line has the proof of its call: its request has the model and the form of that call.
    for (const { proof } of proxy.calls)
      expect(proof?.answer.kind).toBe(proof?.request.stream === true ? 'stream' : 'whole')
  })

  it.each([
    ['POST', '/v1/embeddings', 404],
    ['GET', '/v1/chat/completions', 405],
    ['POST', '/v1/models', 405],
    ['GET', '/', 404],
  ])('the proxy refuses %s %s by status %d', async (method, path, status) => {
    const reply = await fetch(new URL(path, proxy.baseURL), { method })
    expect(reply.status).toBe(status)
    expect(await reply.json()).toHaveProperty('error.message')
  })

  it('the proxy refuses a body that is not JSON with one meaning, and sends nothing', async () => {
    const reply = await post(proxy, {}, { body: '{"model":"a","model":"b"}' })
    expect(reply.status).toBe(400)
    expect(await reply.json()).toMatchObject({ error: { code: 'invalid_request' } })
    expect(proxy.calls).toMatchObject([{ verdict: 'error', detail: 'invalid_request' }])
  })

  it('the proxy refuses a body that is too large, after it was sent whole', async () => {
    // On a connection of its own: this process is busy for so long that a kept one may end meanwhile.
    const options = { method: 'POST', agent: false }
    const status = await new Promise((resolve, reject) => {
      const request = httpRequest(`${proxy.baseURL}/chat/completions`, options, (response) =>
        resolve(response.resume().statusCode),
      )
      request.on('error', reject).end(Buffer.alloc(64 * 2 ** 20 + 1, ' '))
    })
    expect(status).toBe(413)
    expect(proxy.calls).toMatchObject([{ verdict: 'error', detail: 'payload_too_large' }])
  })

  it('the proxy stops while a request is still being sent', async () => {
    const { connect: options } = expected
    const other = await startProxy(await connect({ url: service.url, ...options }))
    const { port } = new URL(other.baseURL)
    const socket = createConnection(Number(port), '127.0.0.1').on('error', () => undefined)
    socket.write(
      'POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\nab',
    )
    const answered = new Promise((resolve) => socket.once('data', (data) => resolve(String(data))))
    await new Promise<void>((resolve) => socket.once('connect', resolve))
    expect((await fetch(`${other.baseURL}/models`)).status).toBe(200)
    await other.close()
    expect(await answered).toMatch(/^HTTP\/1.1 503 /)
    expect(other.calls).toMatchObject([{ verdict: 'error', detail: 'stopping' }])
  })

  it.each([
    ['another host', { host: 'evil.example' }],
    ['a web page', { origin: 'https://evil.example' }],
    ['a web page that names no origin', { 'sec-fetch-site': 'cross-site' }],
    ['a web page of the same site', { 'sec-fetch-site': 'same-site' }],
  ])('the proxy refuses requests of %s', async (_, headers) => {
    const { port } = new URL(proxy.baseURL)
    const status = await new Promise((resolve, reject) => {
      const request = httpRequest(
        { host: '127.0.0.1', port, path: '/v1/models', headers },
        (response) => {
          response.resume()
          resolve(response.statusCode)
        },
      )
      request.on('error', reject).end()
    })
    expect(status).toBe(403)
  })
})

describe('the proxy before a hostile gateway', () => {
  let hostile: HostileGateway
  let proxy: Awaited<ReturnType<typeof startProxy>>
  beforeAll(async () => {
    hostile = await startHostileGateway(service.url)
    const { connect: options } = expected
    // The attacker must read what it alters.
    const client = await connect({ url: hostile.url, encrypt: false, ...options })
    proxy = await startProxy(client)
  })
  afterEach(() => {
    hostile.set(null)
    proxy.calls.splice(0)
  })
  afterAll(async () => {
    await proxy.close()
    await hostile.stop()
  })

  it('an answer and a stream that the proxy refuses are errors, which no client tries again', async () => {
    for (const stream of [false, true]) {
      hostile.set(rewriting((text) => text.replaceAll('Ann', 'Eve')))
      const reply = await post(proxy, ask({ stream }))
      const text = await reply.text()
      if (!stream)
        expect([reply.status, reply.headers.get('x-should-retry')]).toEqual([502, 'false'])
      expect(text).toMatch(/"code":"wrong_(response|stream)"/)
      expect(text).not.toMatch(/Eve|\[DONE\]/)
    }
    expect(proxy.calls).toMatchObject([{ verdict: 'refused' }, { verdict: 'refused' }])
  })
})

describe('affidavit proxy', () => {
  it('the proxy keeps each proof in a file that the program verifies, and counts at its end', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'affidavit-proofs-'))
    const program = await startProxyProgram(service, ['--save', folder])
    expect((await post(program, ask())).status).toBe(200)
    expect(await (await post(program, ask({ stream: true }))).text()).toContain('[DONE]')
    await until('both are told', () => program.output().split(' checked ').length === 3)
    const { code, output } = await program.stop()
    expect(code).toBe(0)
    expect(output).toContain('2 checked, 0 refused, 0 errors, 0 left')
    const files = readdirSync(folder)
    const proofs = files.filter((file) => file.endsWith('.json'))
    expect(proofs).toHaveLength(2)
    for (const file of proofs) {
      expect(output).toContain(`hash ${file.replace('.json', '')}`)
      // Already completed: the check needs only the file and the policy.
      const words = ['verify', join(folder, file), '--policy', service.policyFile]
      const verified = execFileSync(process.execPath, [CLI, ...words], { encoding: 'utf8' })
      expect(verified).toMatch(/^VERIFIED: /)
    }
    expect(files).toHaveLength(2)
  })

  it.skipIf(!PYTHON.isMet)(
    PYTHON.title("the scripts of Python's standard library get checked streams"),
    async () => {
      const program = await startProxyProgram(service)
      for (const name of SCRIPTS) {
        const run = (...words: readonly string[]) =>
          runProcess('python3', [join(PYTHON_FOLDER, name), ...words])
        const asked = await run(program.baseURL, service.apiKey, 'Hello from Python')
        expect(asked).toMatchObject({ code: 0, stderr: '' })
        expect(asked.stdout.trim()).toBe('[demonstration] You said: Hello from Python')
        const refused = await run(program.baseURL, 'sk-none', 'Hello from Python')
        expect(refused).toMatchObject({ code: 1, stdout: '' })
      }
      expect((await program.stop()).output).toContain('3 checked, 0 refused, 3 errors')
    },
  )
})
