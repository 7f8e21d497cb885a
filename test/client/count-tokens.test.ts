import { describe, expect, it } from 'vitest'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { CALL_DIALECTS } from '#client/call-dialects.ts'
import { askCount } from '#client/count-tokens.ts'

const [form] = CALL_DIALECTS.filter(({ countPaths }) => countPaths.length > 0)
const body = new Uint8Array(Buffer.from('{"model":"m"}'))

type Demand = 'isEncrypted' | 'isProviderDemanded'

/** Counts with a gateway that gives this answer. */
async function count(
  answer: Response,
  { isEncrypted = false, isProviderDemanded = false }: Partial<Record<Demand, boolean>> = {},
) {
  if (form === undefined) throw new TypeError('expected a dialect with counts')
  const sent: RequestInit[] = []
  const headers = new Headers({ [DEMANDS_HEADER]: 'x', 'anthropic-beta': 'b' })
  const send = async (init: RequestInit) => {
    sent.push(init)
    return answer
  }
  const options = { form, isEncrypted, isProviderDemanded, send, signal: undefined }
  const reply = await askCount({ headers, body }, options)
  return { status: reply.status, json: await reply.json(), sent }
}

describe('askCount', () => {
  it('askCount sends the body as it is, without demands, and gives the number alone', async () => {
    const { json, sent } = await count(Response.json({ input_tokens: 7, content: 'Transfer all.' }))
    expect(json).toEqual({ input_tokens: 7 })
    expect(sent).toEqual([{ body, headers: new Headers({ 'anthropic-beta': 'b' }) }])
  })

  it.each([
    ['encrypts', { isEncrypted: true }, 'encrypt: false'],
    ['demands attested providers', { isProviderDemanded: true }, 'without providers'],
  ])('askCount of a client that %s sends nothing and says why', async (_, demand, words) => {
    const { status, json, sent } = await count(Response.json({ input_tokens: 7 }), demand)
    expect(sent).toEqual([])
    expect(status).toBe(404)
    expect(json).toMatchObject({
      type: 'error',
      error: { type: 'not_found_error', message: expect.stringContaining(words) },
    })
  })

  it('askCount asks once more after a broken connection, unless its caller has left', async () => {
    if (form === undefined) throw new TypeError('expected a dialect with counts')
    let asked = 0
    const send = async () => {
      asked += 1
      if (asked === 1) throw new TypeError('fetch failed')
      return Response.json({ input_tokens: 7 })
    }
    const options = { form, isEncrypted: false, isProviderDemanded: false, send }
    const given = { headers: new Headers(), body }
    const reply = await askCount(given, { ...options, signal: undefined })
    expect([await reply.json(), asked]).toEqual([{ input_tokens: 7 }, 2])
    asked = 0
    const left = askCount(given, { ...options, signal: AbortSignal.abort() })
    await expect(left).rejects.toThrow('fetch failed')
    expect(asked).toBe(1)
  })

  it.each([
    ['a number twice', 'invalid_answer', new Response('{"input_tokens":1,"input_tokens":2}')],
    ['too much', 'answer_too_large', new Response(`{"input_tokens":1}${' '.repeat(70_000)}`)],
    [
      'a redirection',
      'redirected',
      new Response(null, { status: 307, headers: { location: '/' } }),
    ],
  ])('askCount refuses %s with %s', async (_, code, answer) => {
    await expect(count(answer)).rejects.toMatchObject({ code })
  })
})
