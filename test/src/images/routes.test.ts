import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import OpenAI, { toFile } from 'openai'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { ValidationError } from '#src/api/errors.ts'
import type { FormPart } from '#src/api/form-body.ts'
import { PIPELINED_MAX } from '#src/api/server.ts'
import { createEndpointSource } from '#src/images/endpoint-source.ts'
import { readImageFacts } from '#src/images/image-facts.ts'
import { openImageFolder } from '#src/images/image-folder.ts'
import { generation, parseImageEdit } from '#src/images/image-request.ts'
import { createImageStore, type ImageStore } from '#src/images/image-store.ts'
import { createImages } from '#src/images/images.ts'
import { EDIT_BYTES_MAX, IMAGE_READS_MAX } from '#src/images/routes.ts'
import { createDemoServer } from '#src/local/demo/server.ts'
import { createEndpoint } from '#src/upstream/endpoint.ts'
import { outcomeOf } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { jpegOf, pngOf } from '../../support/image-files.ts'
import { connectRaw } from '../../support/raw-http.ts'
import {
  type EndpointScript,
  type ScriptedEndpoint,
  startScriptedEndpoint,
} from '../../support/scripted-endpoint.ts'
import { validateBody } from '../../support/validate-body.ts'

const MODELS = ['demo/image']
const TTL_MS = 3_600_000
const OPERATOR_KEY = 'sk-operator-planted'

/** The true wire format comes from the demonstration; faults are scripted. */
const demo = createDemoServer({ delayMs: 0, now: Date.now })
let demoUrl = ''
let upstream: ScriptedEndpoint
let store: ImageStore
let gateway: TestGateway
let client: OpenAI
let folder = ''
/** How far the clock of the images has been put forward. */
let laterMs = 0

const relayToDemo: EndpointScript = async ({ body, url, headers }, response) => {
  const answer = await fetch(demoUrl + url, {
    method: 'POST',
    body: new Uint8Array(body),
    headers: { 'content-type': headers['content-type'] ?? '' },
  })
  response.writeHead(answer.status, { 'content-type': 'application/json' }).end(await answer.text())
}

beforeAll(async () => {
  demo.listen(0, '127.0.0.1')
  await once(demo, 'listening')
  demoUrl = `http://127.0.0.1:${(demo.address() as AddressInfo).port}`
  upstream = await startScriptedEndpoint()
  const endpoint = createEndpoint({
    url: `${upstream.origin}/v1`,
    headers: { authorization: `Bearer ${OPERATOR_KEY}` },
    timeoutMs: 30_000,
    answerBytesMax: 1024 * 1024,
  })
  folder = await mkdtemp(join(tmpdir(), 'affidavit-test-'))
  const now = () => Date.now() + laterMs
  const objects = openImageFolder(folder)
  store = createImageStore({ objects, ttlMs: TTL_MS, bytesMax: 50_000_000, now })
  const images = createImages({
    sources: [createEndpointSource({ endpoint, models: MODELS })],
    store,
    now,
  })
  gateway = await startGateway({ images })
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key, maxRetries: 0 })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await gateway.stop()
  await upstream.stop()
  demo.close()
  demo.closeAllConnections()
  // A file that has expired may just be on its way out.
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
}, GATEWAY_HOOK_TIMEOUT_MS)
beforeEach(() => {
  laterMs = 0
  upstream.setScript(relayToDemo)
})

const request = { model: 'demo/image', prompt: 'a red fox', size: '256x256' as const }
const authorization = () => ({ authorization: `Bearer ${gateway.key}` })

function generate(body: unknown, init: RequestInit = {}): Promise<Response> {
  return fetch(`${gateway.url}/v1/images/generations`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { ...authorization(), 'content-type': 'application/json' },
    ...init,
  })
}

type Fields = Readonly<Record<string, string | Blob | undefined>>

/** `more`: fields that may have a name that comes already. */
function edit(
  fields: Fields,
  init: RequestInit = {},
  more: readonly (readonly [string, string | Blob])[] = [],
): Promise<Response> {
  const form = new FormData()
  const given = Object.entries({ image: new Blob([pngOf(32)]), ...request, ...fields })
  for (const [name, value] of [...given, ...more]) if (value !== undefined) form.append(name, value)
  return fetch(`${gateway.url}/v1/images/edits`, {
    method: 'POST',
    body: form,
    headers: authorization(),
    ...init,
  })
}

async function faultsOf(reply: Response): Promise<unknown> {
  const { detail } = (await reply.json()) as { detail: { loc: unknown[]; type: string }[] }
  return [reply.status, detail.map((fault) => [fault.loc.join('.'), fault.type])]
}

type Parts = Readonly<Record<string, string | Buffer | undefined>>

/** The parts of a form to change an image, with other or further ones. */
const partsOf = (parts: Parts) =>
  Object.entries({ image: pngOf(32), ...request, ...parts }).flatMap<FormPart>(([name, value]) =>
    value === undefined
      ? []
      : typeof value === 'string'
        ? [{ name, filename: null, bytes: Buffer.from(value) }]
        : [{ name, filename: name, bytes: value }],
  )

function faultsIn(parse: () => unknown): unknown {
  try {
    return parse()
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error
    return error.detail.map(({ loc, type }) => [loc.join('.'), type])
  }
}

it('POST /v1/images/generations keeps what was made, and gives its address, by default', async () => {
  const reply = await generate({ ...request, n: null, user: null })
  expect(reply.status).toBe(200)
  const answer = (await reply.json()) as { data: { url: string }[] }
  expect(answer).toEqual({
    created: expect.closeTo(Date.now() / 1000, -1),
    data: [{ b64_json: null, revised_prompt: null, url: expect.any(String) }],
  })
  const { url = '' } = answer.data[0] ?? {}
  expect(url).toMatch(new RegExp(`^${gateway.url}/v1/images/files/[0-9a-f]{32}-\\d{6}$`))
  const image = await fetch(url)
  expect(image.headers.get('content-type')).toBe('image/png')
  expect(image.headers.get('cache-control')).toMatch(/^private, max-age=3[56]\d\d, immutable$/)
  const bytes = new Uint8Array(await image.arrayBuffer())
  expect(readImageFacts(bytes)).toEqual({ type: 'png', width: 256, height: 256 })
  const head = await fetch(url, { method: 'HEAD' })
  expect([head.status, head.headers.get('content-length')]).toEqual([200, String(bytes.length)])
})

it('POST /v1/images/generations asks for base64 with the operator’s key, whatever the caller asked for', async () => {
  await generate({ ...request, style: 'natural', user: 'u', api_base: 'http://127.0.0.1:9' })
  const seen = upstream.requests.at(-1)
  expect(seen).toMatchObject({ method: 'POST', url: '/v1/images/generations' })
  expect(seen?.headers.authorization).toBe(`Bearer ${OPERATOR_KEY}`)
  expect(seen?.json).toEqual({
    ...request,
    n: 1,
    response_format: 'b64_json',
    style: 'natural',
    user: 'u',
  })
})

// https://github.com/stdapi-ai/stdapi.ai/issues/84
it.each([
  ['stream', true],
  ['background', 'transparent'],
  ['output_format', 'webp'],
  ['partial_images', 2],
  ['moderation', 'low'],
  ['seed', 0],
  ['negative_prompt', 'blue'],
  ['image_url', 'https://example.org/fox.png'],
  ['image', 'data:image/png;base64,AAAA'],
  ['width', 512],
])('a request to make images is refused with %s, which would change the answer', (name, value) => {
  const read = (members: object) =>
    validateBody(generation, Buffer.from(JSON.stringify({ ...request, ...members })))
  const detail = [
    { loc: ['body', name], msg: `${name} is not supported here`, type: 'unsupported_parameter' },
  ]
  expect(() => read({ [name]: value })).toThrow(expect.objectContaining({ detail }))
  const same = { stream: false, background: 'auto', output_compression: 100, input_fidelity: 'low' }
  expect(read({ ...same, [name]: null })).toMatchObject({ prompt: request.prompt })
})

// https://github.com/agentgateway/agentgateway/issues/621
it.each(['gzip', 'deflate', 'br', 'zstd'] as const)(
  'POST /v1/images/generations undoes the coding %s, or fails without crashing',
  async (coding) => {
    const encode = {
      gzip: gzipSync,
      deflate: deflateSync,
      br: brotliCompressSync,
      zstd: gzipSync,
    }
    const answer = JSON.stringify({ data: [{ b64_json: pngOf(8).toString('base64') }] })
    upstream.setScript((_, response) => {
      response.setHeader('content-encoding', coding)
      response.setHeader('content-type', 'application/json')
      response.end(encode[coding](answer))
    })
    expect((await generate(request)).status).toBe(coding === 'zstd' ? 502 : 200)
    expect(upstream.requests.at(-1)?.headers['accept-encoding']).toBe('identity')
  },
)

it.each([
  ['a data URL', (base64: string) => `data:image/png;base64,${base64}`],
  ['lines', (base64: string) => base64.replaceAll(/.{76}/g, '$&\r\n')],
])('POST /v1/images/generations takes base64 as %s from the endpoint', async (_, write) => {
  const base64 = pngOf(64).toString('base64')
  upstream.setScript(() => ({ data: [{ b64_json: write(base64) }] }))
  const answer = await (await generate({ ...request, response_format: 'b64_json' })).json()
  expect(answer).toMatchObject({ data: [{ b64_json: base64 }] })
})

it('POST /v1/images/generations refuses a model that is not served', async () => {
  const reply = await generate({ ...request, model: 'dall-e-9' })
  expect(await outcomeOf(reply)).toEqual([404, 'unsupported_model'])
})

it('an address of an image ends with its time', async () => {
  const { data = [] } = await client.images.generate(request)
  const url = data[0]?.url ?? ''
  expect((await fetch(url)).status).toBe(200)
  expect(gateway.logLines.join()).toContain('/v1/images/files/…')
  expect(gateway.logLines.join()).not.toContain(url.split('/').at(-1))
  laterMs = TTL_MS + 1
  expect(await outcomeOf(await fetch(url))).toEqual([404, 'not_found'])
})

it.each(['0'.repeat(32), 'a', '..%2f..%2fetc%2fpasswd', '%00', '%ff'])(
  'no image is at an address with the id %s',
  async (id) => {
    const reply = await fetch(`${gateway.url}/v1/images/files/${id}`, {
      headers: authorization(),
    })
    expect(reply.status).toBeGreaterThanOrEqual(400)
    expect(reply.status).toBeLessThan(500)
  },
)

it('POST /v1/images/edits sends the image and the fields on, under names of ours', async () => {
  const image = new Blob([jpegOf(640, 480)], { type: 'application/x-evil' })
  const reply = await edit({ image, n: '2', user: 'u', unknown: 'x' })
  expect(((await reply.json()) as { data: unknown[] }).data).toHaveLength(2)
  const { url, headers, body } = upstream.requests.at(-1) ?? expect.fail('expected a request')
  expect(url).toBe('/v1/images/edits')
  const type = headers['content-type'] ?? ''
  const form = await new Response(new Uint8Array(body), {
    headers: { 'content-type': type },
  }).formData()
  const sent = form.get('image')
  if (!(sent instanceof File)) expect.fail('expected a file')
  expect([sent.name, sent.type]).toEqual(['image.jpeg', 'image/jpeg'])
  expect(Buffer.from(await sent.arrayBuffer())).toEqual(jpegOf(640, 480))
  form.delete('image')
  expect(Object.fromEntries(form)).toEqual({
    ...request,
    n: '2',
    response_format: 'b64_json',
    user: 'u',
  })
})

it('POST /v1/images/edits takes an image that comes as a list of one, as the official SDK sends such a list', async () => {
  const image = [await toFile(pngOf(64), 'fox.png', { type: 'image/png' })]
  const { data = [] } = await client.images.edit({
    ...request,
    image,
    response_format: 'b64_json',
  })
  expect(data).toHaveLength(1)
  const two = [32, 64].map((edge) => ['image[]', new Blob([pngOf(edge)])] as const)
  const reply = await edit({ image: undefined }, {}, two)
  expect(await reply.clone().text()).toContain('Only one image can be changed by a request')
  expect(await faultsOf(reply)).toEqual([422, [['body.image', 'value_error']]])
})

it.each([
  ['prompt', 'x'.repeat(32_001), 'string_too_long'],
  ['image', 'data:image/png;base64,AAAA', 'image_type'],
  ['quality', 'high', 'unsupported_parameter'],
  ['style', 'natural', 'unsupported_parameter'],
  ['moderation', 'low', 'unsupported_parameter'],
  ['seed', '0', 'unsupported_parameter'],
])('a form to change an image is refused for its %s', (name, text, type) => {
  expect(faultsIn(() => parseImageEdit(partsOf({ [name]: text })))).toEqual([
    [`body.${name}`, type],
  ])
})

it('a form to change an image may have the defaults of members that are not supported', () => {
  const defaults = {
    quality: 'auto',
    style: '',
    moderation: 'auto',
    stream: 'false',
    seed: '-1',
    output_compression: '100',
    input_fidelity: 'low',
  }
  expect(parseImageEdit(partsOf(defaults))).toMatchObject({ prompt: request.prompt })
})

it('POST /v1/images/edits refuses a second file, which would be left out of account', async () => {
  const reply = await edit({ mask: new Blob([pngOf(32)]) })
  expect(await outcomeOf(reply)).toEqual([400, 'unsupported_request_parameter'])
})

it('POST /v1/images/edits tells all faults at once, and a field that is given twice', async () => {
  const faulty = { image: undefined, model: undefined, size: 'large' }
  const reply = await edit(faulty, {}, [['prompt', 'b']])
  const [status, faults] = (await faultsOf(reply)) as [number, unknown[]]
  expect(status).toBe(422)
  expect(faults).toEqual(
    expect.arrayContaining([
      ['body.prompt', 'value_error'],
      ['body.image', 'missing'],
      ['body.model', 'missing'],
      ['body.size', 'literal_error'],
    ]),
  )
})

it('a form to change an image may have one of 25 MiB, and none with a byte more', () => {
  const larger = Buffer.alloc(25 * 1024 * 1024 + 1)
  larger.set(pngOf(16))
  const image = larger.subarray(1)
  image.set(pngOf(16))
  expect(parseImageEdit(partsOf({ image })).image.bytes.length).toBe(image.length)
  larger.set(pngOf(16))
  expect(faultsIn(() => parseImageEdit(partsOf({ image: larger })))).toEqual([
    ['body.image', 'too_long'],
  ])
})

it('POST /v1/images/edits reads no form that is longer than any image', async () => {
  const { socket, write, until } = await connectRaw(gateway.port)
  const type = 'content-type: multipart/form-data; boundary=b'
  const head = `host: x\r\nauthorization: Bearer ${gateway.key}\r\n${type}`
  const length = `content-length: ${EDIT_BYTES_MAX + 1}`
  write(`POST /v1/images/edits HTTP/1.1\r\n${head}\r\n${length}\r\n\r\n`)
  expect(await until(/payload_too_large/)).toMatch(/^HTTP\/1.1 413 /)
  socket.destroy()
})

it('POST /v1/images/edits refuses what is no form', async () => {
  const send = (type: string, body: string, more: Record<string, string> = {}) =>
    edit({}, { body, headers: { ...authorization(), 'content-type': type, ...more } })
  const form = 'multipart/form-data; boundary=b'
  expect(await outcomeOf(await send(form, '--b--', { 'content-encoding': 'gzip' }))).toEqual([
    415,
    'unsupported_media_type',
  ])
  expect(await faultsOf(await send(form, 'no form'))).toEqual([
    422,
    [['body', 'multipart_invalid']],
  ])
})

it('readers that take nothing hold a bounded number of images open', async () => {
  const id = await store.put({ bytes: randomBytes(5_000_000), type: 'png' })
  const path = `/v1/images/files/${id}`
  const get = `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`
  const readers = await Promise.all(
    Array.from({ length: IMAGE_READS_MAX / PIPELINED_MAX }, async () => {
      const { socket, write } = await connectRaw(gateway.port)
      socket.pause()
      write(get.repeat(PIPELINED_MAX))
      return socket
    }),
  )
  const statusOf = () => fetch(gateway.url + path, { method: 'HEAD' }).then((got) => got.status)
  await expect.poll(statusOf, { interval: 100 }).toBe(503)
  for (const reader of readers) reader.destroy()
  await expect.poll(statusOf).toBe(200)
})

const b64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')

it.each<[string, EndpointScript, number, string]>([
  ['gives too few', () => ({ data: [] }), 502, 'provider_error'],
  [
    'gives addresses',
    () => ({ data: [{ url: 'http://127.0.0.1:9/x.png' }] }),
    502,
    'provider_error',
  ],
  [
    'gives a page',
    () => ({ data: [{ b64_json: b64(Buffer.from('<script>')) }] }),
    502,
    'provider_error',
  ],
  [
    'gives too much',
    () => ({ data: [{ b64_json: 'A'.repeat(1_100_000) }] }),
    502,
    'answer_too_large',
  ],
  ['hangs up', (_, response) => void response.destroy(), 502, 'provider_unreachable'],
])('a caller for images is told when the endpoint %s', async (_, script, status, code) => {
  upstream.setScript(script)
  expect(await outcomeOf(await generate(request))).toEqual([status, code])
})

it('the endpoint for images is left when the caller leaves', async () => {
  const reached = new Promise<void>((resolve) => upstream.setScript(() => void resolve()))
  const left = upstream.left()
  const abort = new AbortController()
  const calling = edit({ prompt: 'planted-prompt' }, { signal: abort.signal })
  await reached
  abort.abort()
  await expect(calling).rejects.toThrow()
  await expect.poll(() => upstream.left() - left).toBe(1)
  for (const planted of ['planted-prompt', OPERATOR_KEY])
    expect(gateway.logLines.join()).not.toContain(planted)
})
