import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import { EVENT_DIALECTS, type EventDialect, proofOfEvent } from '#attestation/dialects/dialects.ts'
import { readKeptStream } from '#attestation/dialects/kept-stream.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { messagesStream } from './messages-streams.ts'
import { readAll, withProof } from './readers.ts'
import { responsesStream } from './responses-streams.ts'

const SOURCES: Readonly<Record<string, readonly JsonObject[]>> = {
  responses: responsesStream([
    { kind: 'message', id: 'msg_1', pieces: ['Hel', 'lo'] },
    { kind: 'call', id: 'fc_1', pieces: ['{"path":"a.txt"}'] },
  ]),
  messages: messagesStream([
    { kind: 'text', pieces: ['Hel', 'lo'] },
    { kind: 'tool', id: 'toolu_1', pieces: ['{"path":"a.txt"}'] },
  ]),
}
const PROOF = { hash: 'ab', receipt: { version: 3 } }

/** The events that an enclave gives out, the last with a proof. */
function keptOf(dialect: EventDialect): readonly DialectEvent[] {
  const { given } = readAll(dialect.openStream(), SOURCES[dialect.name] ?? [])
  return given.map((event, at) =>
    at === given.length - 1 ? withProof(dialect, event, PROOF) : event,
  )
}

for (const dialect of Object.values(EVENT_DIALECTS))
  describe(`a kept stream of ${dialect.name}`, () => {
    const kept = keptOf(dialect)
    const last = kept.at(-1) as DialectEvent
    const codeOf = (events: readonly DialectEvent[]) => {
      try {
        readKeptStream(dialect.name, events)
        return null
      } catch (error) {
        return (error as { readonly code?: string }).code
      }
    }

    it('a kept stream gives its answer, its hash and its proof', () => {
      const { response, streamHash, proof } = readKeptStream(dialect.name, kept)
      const reader = dialect.openStream()
      const { given } = readAll(reader, SOURCES[dialect.name] ?? [])
      expect(response).toEqual(reader.response())
      expect(proof).toEqual(PROOF)
      const lines = given.map((event) => `${canonicalizeJson(event)}\n`).join('')
      expect(streamHash).toBe(createHash('sha256').update(lines).digest('hex'))
      expect(proofOfEvent(dialect, last)).toEqual(PROOF)
      expect(dialect.usageOf(response)).toEqual({
        prompt_tokens: expect.any(Number),
        completion_tokens: expect.any(Number),
        total_tokens: expect.any(Number),
      })
    })

    it('a kept stream is refused when it is cut before its end, anywhere', () => {
      for (let length = 0; length < kept.length; length++)
        expect(codeOf(kept.slice(0, length))).toBe('cut_stream')
    })

    it('a kept stream is refused with an event after the last, without a proof, or with a proof elsewhere', () => {
      expect(codeOf([...kept, kept[0] as DialectEvent])).toBe('late_event')
      expect(codeOf(readAll(dialect.openStream(), SOURCES[dialect.name] ?? []).given)).toBe(
        'missing_proof',
      )
      const [first, ...others] = kept as readonly [DialectEvent, ...DialectEvent[]]
      expect(codeOf([withProof(dialect, first, PROOF), ...others])).toBe('unsettled_event')
    })

    it('a kept stream is refused when an event lacks its name, or has another', () => {
      const [first, ...others] = kept as readonly [DialectEvent, ...DialectEvent[]]
      expect(codeOf([{ ...first, event: '' }, ...others])).toBe('unsettled_event')
      expect(codeOf([{ ...first, event: 'ping' }, ...others])).toBe('changed_type')
      expect(codeOf([{ event: 'new', data: { type: 'new' } }, ...kept])).toBe('unsettled_event')
    })
  })
