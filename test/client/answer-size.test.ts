import { describe, expect, it } from 'vitest'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { createNamedEventReader } from '#client/answer-readers.ts'
import { createAnswerSize } from '#client/answer-size.ts'
import { messagesStream } from '../attestation/dialects/messages-streams.ts'

const refusal = expect.objectContaining({ code: 'answer_too_large' })

describe('the size of an answer', () => {
  it('an answer with too many objects is refused, also in several texts', () => {
    const many = '{},'.repeat(1_500_000)
    const size = createAnswerSize()
    size.add(new TextEncoder().encode(`[${many}0]`))
    size.add(`[${many}0]`)
    expect(() => size.add(`[${many}0]`)).toThrow(refusal)
  })

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
