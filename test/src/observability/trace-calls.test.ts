import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLogger } from '#src/observability/logger.ts'
import { openTraces, type Traces, traceCalls } from '#src/observability/traces.ts'
import { CHAT_REQUEST, postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import {
  type CollectedSpan,
  type OtlpCollector,
  startOtlpCollector,
} from '../../support/otlp-collector.ts'
import { answerFault, answerWhole } from '../../support/scripted-enclave.ts'

const STATUS_UNSET = 0
const STATUS_ERROR = 2

let collector: OtlpCollector
let traces: Traces
let gateway: TestGateway
beforeAll(async () => {
  collector = await startOtlpCollector()
  const config = { url: `${collector.url}/v1/traces`, headers: {}, serviceName: 'tests', ratio: 1 }
  const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
  traces = openTraces(config, { version: '1', now: Date.now, log })
  gateway = await startGateway({ observers: [traceCalls(traces.tracer)] })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await gateway.stop()
  await traces.close()
  await collector.close()
}, GATEWAY_HOOK_TIMEOUT_MS)

/** The spans of a call in a trace of its own: the server's, and the inference's. */
async function spansOf(
  digit: string,
  body: object,
): Promise<readonly (CollectedSpan | undefined)[]> {
  const traceId = digit.repeat(32)
  const headers = { traceparent: `00-${traceId}-${'1'.repeat(16)}-01` }
  await (await postChat(gateway, body, { headers })).text()
  const named = (start: string) =>
    collector.spans().find((span) => span.traceId === traceId && span.name.startsWith(start))
  const read = () => [named(`POST ${VERIFIED_PATH}`), named('chat')]
  await expect
    .poll(() => read().every((span) => span !== undefined), { timeout: 15_000 })
    .toBe(true)
  return read()
}

describe('spans of a call', () => {
  it('spans of a call that went well have no error', async () => {
    gateway.enclave.setScript(answerWhole({}))
    for (const span of await spansOf('a', CHAT_REQUEST)) {
      expect(span?.status).toBe(STATUS_UNSET)
      expect(span?.attributes).not.toHaveProperty('error.type')
    }
  })

  it('spans of a call that failed here have the code that the caller was told', async () => {
    gateway.enclave.setScript(
      answerFault({ status: 504, code: 'provider_timeout', message: 'late' }),
    )
    for (const span of await spansOf('b', CHAT_REQUEST))
      expect(span).toMatchObject({
        status: STATUS_ERROR,
        attributes: { 'error.type': 'provider_timeout' },
      })
  })

  it('spans of a call whose stream ended with an error event have its code, though its status is 200', async () => {
    gateway.enclave.setScript(({ response }) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end('data: {"choices":[]}\n\n')
    })
    for (const span of await spansOf('c', { ...CHAT_REQUEST, stream: true }))
      expect(span).toMatchObject({
        status: STATUS_ERROR,
        attributes: { 'error.type': 'enclave_unavailable' },
      })
  })

  it('spans of a call that the provider refused are none of our errors: the status says it', async () => {
    gateway.enclave.setScript(answerFault({ status: 409, code: 'provider_refused', message: 'no' }))
    const [server, inference] = await spansOf('d', CHAT_REQUEST)
    expect(server?.attributes).toMatchObject({ 'http.response.status_code': 409 })
    for (const span of [server, inference]) {
      expect(span?.status).toBe(STATUS_UNSET)
      expect(span?.attributes).not.toHaveProperty('error.type')
    }
  })
})
