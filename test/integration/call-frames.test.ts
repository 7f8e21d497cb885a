import { Pool } from 'undici'
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest'
import { ENCLAVE_PATHS } from '#enclave/protocol/enclave-api.ts'
import { CHAT_REQUEST, postChat } from '../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../support/gateway.ts'

/** Functions that a call passes from its route to the HTTP client, each with a part in the call. */
const FRAMES_MAX = 8

const STACK_FRAMES = 200
const defaultLimit = Error.stackTraceLimit

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway()
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => gateway.stop(), GATEWAY_HOOK_TIMEOUT_MS)
afterEach(() => {
  vi.restoreAllMocks()
  Error.stackTraceLimit = defaultLimit
})

/** Keeps the stack of each request for a call that is given to the HTTP client. */
function keepStacks(): readonly string[] {
  const stacks: string[] = []
  const request: Pool['request'] = Pool.prototype.request
  const paths: readonly string[] = [ENCLAVE_PATHS.completions, ENCLAVE_PATHS.encrypted]
  Error.stackTraceLimit = STACK_FRAMES
  vi.spyOn(Pool.prototype, 'request').mockImplementation(function (this: Pool, ...asked) {
    if (paths.includes(asked[0].path)) stacks.push(new Error('here').stack ?? '')
    return request.apply(this, asked)
  })
  return stacks
}

/** Frames of the product from the room of the route on, the innermost first. */
function framesOf(stack: string): readonly string[] {
  const frames = stack.split('\n').filter((line) => /\/src\/[\w/-]+\.ts/.test(line))
  const outermost = frames.findLastIndex((line) => line.includes('/src/verified/calls/'))
  return frames.slice(0, outermost + 1)
}

it.each<[string, { stream?: true }, Readonly<Record<string, string>>]>([
  ['whole', {}, {}],
  ['streamed', { stream: true }, {}],
  ['repeatable', {}, { 'idempotency-key': crypto.randomUUID() }],
  ['encrypted', {}, { 'ehbp-encapsulated-key': '0f'.repeat(32) }],
])(
  'a call that is %s passes few functions from its route to the HTTP client',
  async (_, more, headers) => {
    const stacks = keepStacks()
    await (await postChat(gateway, { ...CHAT_REQUEST, ...more }, { headers })).text()
    expect(stacks).toHaveLength(1)
    const frames = framesOf(stacks[0] ?? '')
    expect(frames[0]).toContain('/src/enclaves/enclave-client.ts')
    expect(frames.at(-1)).toMatch(/\/src\/verified\/calls\/(completion-routes|encrypted-calls)\.ts/)
    expect(frames.length, frames.join('\n')).toBeLessThanOrEqual(FRAMES_MAX)
  },
)
