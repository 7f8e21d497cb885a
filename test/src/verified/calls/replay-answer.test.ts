import { expect, it } from 'vitest'
import { EventParser } from '#attestation/dialects/chat/event-parser.ts'
import { EVENT_DIALECTS, type EventDialect } from '#attestation/dialects/dialects.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { replayAnswer } from '#src/verified/calls/replay-answer.ts'
import { messagesStream } from '../../../attestation/dialects/messages-streams.ts'
import { readAll } from '../../../attestation/dialects/readers.ts'
import { responsesStream } from '../../../attestation/dialects/responses-streams.ts'

/** The answer that the replayed stream of an answer assembles to. */
function readAgain(dialect: EventDialect, answer: JsonObject): JsonObject {
  const { events, last } = replayAnswer(dialect, answer)
  const parsed = new EventParser().push(Buffer.from(`${events}data: ${last}\n\n`))
  const reader = dialect.openStream()
  for (const { event, data } of parsed) reader.read({ event, data: JSON.parse(data) })
  expect(reader.isEnded).toBe(true)
  return reader.response()
}

function answerOf(dialect: EventDialect, events: readonly JsonObject[]): JsonObject {
  const reader = dialect.openStream()
  expect(readAll(reader, events).code).toBeNull()
  return reader.response()
}

const { messages, responses } = EVENT_DIALECTS

it('a replayed message is the message', () => {
  const answer = answerOf(
    messages,
    messagesStream([
      { kind: 'thinking', pieces: ['a', 'b'], signature: 's' },
      { kind: 'text', pieces: ['é', '', '😀\n'] },
      { kind: 'tool', id: 't_1', pieces: ['{"a":"b"}'] },
    ]),
  )
  expect(readAgain(messages, answer)).toEqual(answer)
})

it.each(['completed', 'incomplete'] as const)(
  'a replayed response that is %s is the response',
  (ending) => {
    const built = responsesStream(
      [
        { kind: 'reasoning', id: 'r_1', pieces: ['a'] },
        { kind: 'message', id: 'm_1', pieces: ['é', '😀\n'] },
        { kind: 'call', id: 'c_1', pieces: ['{"a":"b"}'] },
      ],
      ending,
    )
    const answer = answerOf(responses, built)
    expect(readAgain(responses, answer)).toEqual(answer)
  },
)

it('a replayed response whose failure cut the input of a tool is the response', () => {
  const begun = { id: 'resp_1', object: 'response', model: 'm' }
  const call = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'n' }
  const answer = answerOf(responses, [
    { type: 'response.created', response: begun },
    { type: 'response.output_item.added', item: call },
    { type: 'response.function_call_arguments.delta', output_index: 0, delta: '{"a"' },
    { type: 'response.failed', response: { ...begun, status: 'failed' } },
  ])
  expect(readAgain(responses, answer)).toEqual(answer)
})

it('an answer that did not end cannot be replayed', () => {
  const message = { ...answerOf(messages, messagesStream([])), stop_reason: null }
  expect(() => replayAnswer(messages, message)).toThrow()
})
