import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import {
  type CollectedSpan,
  type OtlpCollector,
  startOtlpCollector,
} from '../support/otlp-collector.ts'

const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736'
const PARENT_ID = '00f067aa0ba902b7'
const VERIFIED = '/v1/verified/chat/completions'
const CHAT = '/v1/chat/completions'

let collector: OtlpCollector
let service: Affidavit

beforeAll(async () => {
  collector = await startOtlpCollector()
  service = await startAffidavit({
    variables: {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-collector-key=plain%20secret',
    },
  })
})
afterAll(async () => {
  await service?.stop()
  await collector?.close()
})

async function call(
  path: string,
  { model = 'demo/echo', stream = false, traceparent = `00-${TRACE_ID}-${PARENT_ID}-01` } = {},
): Promise<string> {
  const messages = [{ role: 'user', content: 'the planted prompt' }]
  const reply = await fetch(service.url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
      traceparent,
    },
    body: JSON.stringify({ model, messages, stream }),
  })
  return await reply.text()
}

/** The spans of a trace, as soon as there are `count`. */
async function spansOf(traceId: string, count: number): Promise<readonly CollectedSpan[]> {
  const read = () => collector.spans().filter((span) => span.traceId === traceId)
  await expect.poll(() => read().length, { timeout: 15_000 }).toBeGreaterThanOrEqual(count)
  return read()
}

const traceIdOf = (digit: string) => digit.repeat(32)
const parentOf = (digit: string, flags = '01') => `00-${traceIdOf(digit)}-${PARENT_ID}-${flags}`
const byName = (spans: readonly CollectedSpan[], name: string) =>
  spans.filter((span) => span.name === name)

describe('a trace', () => {
  it('a trace goes on from the caller’s, over gateway and receipt, with what the conventions say of a model', async () => {
    expect(await call(VERIFIED)).toContain('the planted prompt')
    const spans = await spansOf(TRACE_ID, 6)
    const [server] = byName(spans, `POST ${VERIFIED}`)
    expect(server).toMatchObject({
      parentSpanId: PARENT_ID,
      kind: 2,
      service: 'affidavit-gateway',
      status: 0,
    })
    expect(server?.attributes).toMatchObject({
      'http.request.method': 'POST',
      'http.route': VERIFIED,
      'http.response.status_code': 200,
    })
    const [inference] = byName(spans, 'chat demo/echo')
    expect(inference).toMatchObject({ parentSpanId: server?.spanId, kind: 3 })
    expect(inference?.attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'demo',
      'gen_ai.request.model': 'demo/echo',
      'gen_ai.response.model': 'demo/echo',
      'gen_ai.usage.input_tokens': expect.any(Number),
      'gen_ai.usage.output_tokens': expect.any(Number),
    })
    for (const name of ['authenticate', 'enclave', 'commit', 'enclave completion']) {
      const [span] = byName(spans, name)
      expect(span).toMatchObject({ parentSpanId: server?.spanId, kind: 1 })
      expect(span?.endMs).toBeGreaterThanOrEqual(span?.startMs ?? Number.NaN)
      expect(span?.endMs).toBeLessThanOrEqual((server?.endMs ?? 0) + 1)
    }
  })

  it('a trace goes on in the node agent, for a plain completion', async () => {
    expect(await call(CHAT, { traceparent: parentOf('a'), stream: true })).toContain('[DONE]')
    const spans = await spansOf(traceIdOf('a'), 5)
    const [server] = byName(spans, `POST ${CHAT}`)
    const chats = byName(spans, 'chat demo/echo')
    expect(chats.map(({ service: name, kind }) => [name, kind])).toEqual(
      expect.arrayContaining([
        ['affidavit-gateway', 3],
        ['affidavit-agent', 2],
      ]),
    )
    for (const chat of chats) expect(chat.parentSpanId).toBe(server?.spanId)
    const agents = chats.find(({ service: name }) => name === 'affidavit-agent')
    expect(agents?.attributes).toMatchObject({ 'affidavit.run.outcome': 'done' })
    const gateways = chats.find(({ service: name }) => name === 'affidavit-gateway')
    expect(gateways?.attributes['gen_ai.usage.output_tokens']).toBeGreaterThan(0)
  })

  it('a trace is marked where the call failed', async () => {
    await call(VERIFIED, { traceparent: parentOf('b'), model: 'demo/refusal' })
    await call(VERIFIED, { traceparent: parentOf('b'), model: 'nobody/has-it' })
    const servers = byName(await spansOf(traceIdOf('b'), 4), `POST ${VERIFIED}`)
    expect(servers.map(({ attributes }) => attributes['http.response.status_code'])).toContain(404)
  })

  it('a trace is not begun for a caller who decided against it', async () => {
    await call(CHAT, { traceparent: parentOf('c', '00') })
    await call(CHAT, { traceparent: parentOf('d') })
    await spansOf(traceIdOf('d'), 4)
    expect(await spansOf(traceIdOf('c'), 0)).toEqual([])
  })

  it('a malformed trace context gives a trace of our own', async () => {
    const before = collector.spans().length
    await call(CHAT, { traceparent: `00-${'0'.repeat(32)}-x-01` })
    await expect.poll(() => collector.spans().length, { timeout: 15_000 }).toBeGreaterThan(before)
    expect(collector.spans().map(({ traceId }) => traceId)).not.toContain('0'.repeat(32))
  })

  it('a trace goes to the collector with its headers, and holds no prompt and no key', () => {
    expect(collector.headers[0]).toMatchObject({
      path: '/v1/traces',
      'x-collector-key': 'plain secret',
    })
    expect(collector.received()).toContain('demo/echo')
    expect(collector.received()).not.toContain('planted prompt')
    expect(collector.received()).not.toContain(service.apiKey)
    expect(service.output().stderr).not.toContain('plain secret')
  })
})
