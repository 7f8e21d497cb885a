import { describe, expect, it } from 'vitest'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { createNamedEventReader } from '#client/answer-readers.ts'
import { createAnswerSize } from '#client/answer-size.ts'
import { messagesStream } from '../attestation/dialects/messages-streams.ts'

const refusal = expect.objectContaining({ code: 'answer_too_large' })

describe('the size of an answer', () => {
  it.each([['objects', '{},', 5_000_000]])(
    'an answer with too many %s is refused, in one text or in several',
    (_, unit, count) => {
      const many = unit.repeat(count / 3)
      expect(() => createAnswerSize().add(`[${many}${many}${many}0]`)).toThrow(refusal)
      const size = createAnswerSize()
      size.add(new TextEncoder().encode(`[${many}0]`))
      size.add(`[${many}0]`)
      expect(() => size.add(`[${many}0]`)).toThrow(refusal)
    },
  )

  it("the size of a stream counts the input of a tool, which is a text in the stream's events", () => {
    const input = '{'.repeat(4_000_001)
    const events = messagesStream([{ kind: 'tool', id: 'toolu_1', pieces: [input] }])
    const reader = createNamedEventReader(EVENT_DIALECTS.messages)
    const readAll = () => {
      for (const event of events)
        reader.read(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
    }
    expect(readAll).toThrow(refusal)
  })
})
