import { expect, it } from 'vitest'
import { createLogger } from '#src/observability/logger.ts'

const KEY = `afd_abcdefghijklmnop_${'Zz9-_'.repeat(8)}abc`
const PROMPT = 'the planted prompt: marmalade'

function logging() {
  const lines: string[] = []
  const log = createLogger({
    level: 'debug',
    destination: { write: (line) => void lines.push(line) },
  })
  return { log, lines }
}

it.each([
  { authorization: `Bearer ${KEY}` },
  { headers: { 'fine-tune-authorization': KEY } },
  { call: { credential: KEY } },
  { nested: [{ apiKey: KEY }, { api_key: KEY }, { 'API-Key': KEY }] },
  { request: { messages: [{ content: PROMPT }] } },
  { deep: { er: { messages: PROMPT, prompt: PROMPT, content: PROMPT } } },
  { note: `called with ${KEY}` },
  { err: new Error(`bad key ${KEY}`) },
  {
    err: Object.assign(new Error('insert failed'), {
      query: 'insert',
      params: [PROMPT],
      detail: PROMPT,
    }),
  },
  { err: new Error('outer', { cause: Object.assign(new Error('inner'), { body: PROMPT }) }) },
  { toJSON: () => PROMPT, nested: { toJSON: () => PROMPT } },
])('createLogger writes neither a key nor a prompt of %j', (members) => {
  const { log, lines } = logging()
  log.error(members, 'something failed')
  expect(lines).toHaveLength(1)
  expect(lines.join()).not.toContain(KEY)
  expect(lines.join()).not.toContain('Zz9-_')
  expect(lines.join()).not.toContain(PROMPT)
  for (const line of lines) expect(() => JSON.parse(line)).not.toThrow()
})

it('createLogger withholds what a JSON parser quotes of its input, in the message too', () => {
  const { log, lines } = logging()
  let error: unknown
  try {
    JSON.parse(PROMPT)
  } catch (caught) {
    error = caught
  }
  expect(String(error)).toContain('planted')
  Reflect.apply(log.error, log, [error])
  Reflect.apply(log.error, log, [{ err: error }])
  log.error({ err: error }, 'could not read')
  expect(lines).toHaveLength(3)
  expect(lines.join()).not.toContain('planted')
  expect(lines[2]).toContain('SyntaxError')
})

it('createLogger keeps what an operator needs: code, message, stack, cause, level and time', () => {
  const { log, lines } = logging()
  const cause = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
  log.warn({ requestId: 'r1', err: new Error('no enclave', { cause }) }, 'call failed')
  const line = JSON.parse(lines[0] ?? '')
  expect(line).toMatchObject({ level: 'warn', requestId: 'r1', msg: 'call failed' })
  expect(line.err).toMatchObject({
    message: 'no enclave',
    cause: { code: 'ECONNREFUSED', message: 'refused' },
  })
  expect(line.err.stack).toContain('at ')
  expect(Date.parse(line.time)).toBeGreaterThan(0)
})

it('createLogger bounds long texts, long lists, deep values, bytes and cycles', () => {
  const { log, lines } = logging()
  const cycle: Record<string, unknown> = {}
  cycle.self = cycle
  log.info(
    { text: 'x'.repeat(1e6), list: Array(1e5).fill(1), bytes: new Uint8Array(1e5), cycle },
    'big',
  )
  expect(lines[0]?.length).toBeLessThan(5000)
})

it('createLogger does not recognise a prompt that a call site puts into its message', () => {
  const { log, lines } = logging()
  log.info({}, PROMPT)
  expect(lines[0]).toContain(PROMPT)
})
