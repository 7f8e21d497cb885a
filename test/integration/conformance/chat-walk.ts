import { describe, expect, it } from 'vitest'
import type { ApiReply } from '../../support/documented-api.ts'
import { CHAT, TOOL } from './chat-rows.ts'
import {
  CHAT_PATHS,
  DASHBOARD_CHAT,
  PLAIN_CHAT,
  VERIFIED_CHAT,
  VERIFIED_RECORD,
} from './endpoints.ts'
import { missingFields } from './missing-fields.ts'
import { envelopeOf, expectFields, expectRefusal } from './reply-checks.ts'
import {
  CHUNK_FIELDS,
  COMPLETION_FIELDS,
  LOGPROB_FIELDS,
  PROOF_FIELDS,
  TOOL_CALL_FIELDS,
} from './reply-fields.ts'
import { AWAY_MODEL, SCARCE_MODEL, type Stage } from './stage.ts'

type Chunk = {
  readonly id: string
  readonly choices: readonly object[]
  /**
   * Missing in the chunk with the proof when the caller asked for usage: the SDK would replace the
   * earlier usage with null.
   */
  readonly usage?: object | null
}

type Logprobs = { readonly content: readonly { readonly top_logprobs: readonly object[] }[] }

const chunksOf = ({ events }: ApiReply) =>
  events.slice(0, -1).map(({ name, data }) => {
    expect(name).toBe(null)
    return data as Chunk
  })

/** Interface, 2.2, parts 6 and 7: the answers of chat completions. */
export function walkChat(stage: () => Stage): void {
  describe.each(CHAT_PATHS)('2.2: answers of POST %s', (path) => {
    it('an answer has a choice of the assistant that came to its end', async () => {
      const { value } = await stage().post(path, CHAT)
      expect(value).toMatchObject({
        object: 'chat.completion',
        choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant' } }],
      })
    })

    it('an answer has as many choices as n says, each with its index', async () => {
      const { value } = await stage().post(path, { ...CHAT, n: 3 })
      expect(value).toMatchObject({ choices: [{ index: 0 }, { index: 1 }, { index: 2 }] })
    })

    it('an answer ends for its length where max_tokens says so', async () => {
      const { value } = await stage().post(path, { ...CHAT, max_tokens: 1 })
      expect(value).toMatchObject({
        choices: [{ finish_reason: 'length' }],
        usage: { completion_tokens: 1 },
      })
    })

    it('an answer has log probabilities when they are asked for, of as many tokens as are asked for', async () => {
      const reply = await stage().post(path, { ...CHAT, logprobs: true, top_logprobs: 2 })
      expectFields(reply, LOGPROB_FIELDS)
      const { choices } = reply.value as {
        readonly choices: readonly { readonly logprobs: Logprobs }[]
      }
      const counts = choices[0]?.logprobs.content.map(({ top_logprobs }) => top_logprobs.length)
      expect(new Set(counts)).toEqual(new Set([2]))
    })

    it('an answer calls a tool when tools are required', async () => {
      const request = { ...CHAT, model: 'demo/tools', tools: [TOOL], tool_choice: 'required' }
      const reply = await stage().post(path, request)
      expectFields(reply, TOOL_CALL_FIELDS)
      expect(reply.value).toMatchObject({
        choices: [{ finish_reason: 'tool_calls', message: { tool_calls: [{ type: 'function' }] } }],
      })
    })
  })

  describe.each(CHAT_PATHS)('part 6: streams of POST %s', (path) => {
    it('a stream has chunks of one id, from the role to the reason, and the terminator', async () => {
      const reply = await stage().post(path, { ...CHAT, stream: true })
      expect(reply.headers.get('content-type')).toMatch(/^text\/event-stream/)
      expect(reply.events.at(-1)).toEqual({ name: null, data: '[DONE]' })
      const chunks = chunksOf(reply)
      expect(new Set(chunks.map(({ id }) => id)).size).toBe(1)
      const saying = chunks.filter(({ choices }) => choices.length > 0)
      expect(saying.length).toBeGreaterThan(2)
      expect(saying.flatMap((chunk) => missingFields(chunk, CHUNK_FIELDS))).toEqual([])
      expect(saying[0]?.choices[0]).toMatchObject({ delta: { role: 'assistant', content: '' } })
      expect(saying.at(-1)?.choices).toMatchObject([
        { delta: { content: '' }, finish_reason: 'stop' },
      ])
      expect(chunks.filter(({ usage }) => usage !== null)).toEqual([])
    })

    it('a stream gives the usage once, after the last chunk with a choice, when stream_options ask for it', async () => {
      const request = { ...CHAT, stream: true, stream_options: { include_usage: true } }
      const chunks = chunksOf(await stage().post(path, request))
      const withUsage = chunks.flatMap(({ usage = null }, index) => (usage === null ? [] : [index]))
      expect(withUsage).toHaveLength(1)
      expect(chunks[withUsage[0] ?? 0]).toMatchObject({
        usage: { total_tokens: expect.any(Number) },
      })
      expect(chunks.slice(withUsage[0]).flatMap(({ choices }) => choices)).toEqual([])
    })
  })

  it('a verified stream (2.3) ends with the proof, whose hash finds the record', async () => {
    const { api, post } = stage()
    const chunks = chunksOf(await post(VERIFIED_CHAT, { ...CHAT, stream: true }))
    const proof = chunks.at(-1) as Chunk & { readonly hash: string }
    expect(missingFields(proof, PROOF_FIELDS)).toEqual([])
    const target = `${VERIFIED_CHAT}/${proof.hash}`
    const record = await api.call({ method: 'GET', path: VERIFIED_RECORD, target })
    expectFields(record, { response: 'object', ...inResponse(COMPLETION_FIELDS, ['usage']) })
  })

  describe.each([PLAIN_CHAT, DASHBOARD_CHAT])('part 7: POST %s', (path) => {
    it('a call is answered 503 when no node is there; a stream by an event, without a terminator', async () => {
      const away = { ...CHAT, model: AWAY_MODEL }
      expectRefusal(await stage().post(path, away), 503, 'no_available_inference_nodes')
      const { status, events } = await stage().post(path, { ...away, stream: true })
      expect([status, events]).toEqual([
        200,
        [{ name: 'error', data: envelopeOf(503, 'no_available_inference_nodes') }],
      ])
    })

    it('a call is answered 429 when the limit is reached, as rate-limits says', async () => {
      const { get, post } = stage()
      const scarce = { ...CHAT, model: SCARCE_MODEL }
      await post(path, scarce)
      const refused = await post(path, scarce)
      expectRefusal(refused, 429, 'rate_limit_exceeded')
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
      const { value } = await get('/v1/dashboard/rate-limits')
      expect((value as { readonly usages: readonly object[] }).usages).toContainEqual(
        expect.objectContaining({
          model: 'scarce',
          max_requests_per_minute: 1,
          max_requests_per_day: 1_000,
          max_tokens_per_minute: 50_000,
          max_tokens_per_day: 100_000,
        }),
      )
    })
  })

  it.each(CHAT_PATHS)(
    'POST %s answers 404 for a model that no node serves (facts)',
    async (path) => {
      expectRefusal(
        await stage().post(path, { ...CHAT, model: 'nobodys' }),
        404,
        'unsupported_model',
      )
    },
  )
}

/** The fields for a record's response; fields that begin with one of `others` are left out. */
function inResponse(wanted: Readonly<Record<string, string>>, others: readonly string[]) {
  const kept = Object.entries(wanted).filter(
    ([field]) => !others.some((other) => field.startsWith(other)),
  )
  return Object.fromEntries(kept.map(([field, type]) => [`response.${field}`, type]))
}
