import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { EventParser } from '#attestation/dialects/chat/event-parser.ts'
import { EVENT_DIALECTS, type EventDialect } from '#attestation/dialects/dialects.ts'
import { eventsOfMessage } from '#attestation/dialects/messages/write-events.ts'
import { eventsOfResponse } from '#attestation/dialects/responses/write-events.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { replayAnswer } from '#src/verified/calls/replay-answer.ts'
import { type BuiltBlock, messagesStream } from '../../../attestation/dialects/messages-streams.ts'
import { readAll } from '../../../attestation/dialects/readers.ts'
import { type BuiltItem, responsesStream } from '../../../attestation/dialects/responses-streams.ts'

/** The answer that the replayed stream of an answer assembles to. */
function readAgain(dialect: EventDialect, sent: readonly JsonObject[]): JsonObject {
  const { events, last } = replayAnswer(dialect, sent)
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

const pieces = fc.array(fc.string({ maxLength: 5 }), { maxLength: 4 })
const input = fc.dictionary(fc.string(), fc.string()).map((value) => [JSON.stringify(value)])

describe('replayAnswer', () => {
  it('a replayed message is the message, whatever its blocks are', () => {
    const block: fc.Arbitrary<BuiltBlock> = fc.oneof(
      fc.record({ kind: fc.constant('text' as const), pieces }),
      fc.record({
        kind: fc.constant('text' as const),
        pieces,
        citations: fc.constant<Json[]>([{ type: 'char_location', cited_text: 'x' }]),
      }),
      fc.record({ kind: fc.constant('thinking' as const), pieces, signature: fc.string() }),
      fc.record({ kind: fc.constant('tool' as const), id: fc.uuid(), pieces: input }),
      fc.record({ kind: fc.constant('result' as const), id: fc.uuid() }),
    )
    fc.assert(
      fc.property(fc.array(block, { maxLength: 5 }), (blocks) => {
        const dialect = EVENT_DIALECTS.messages
        const answer = answerOf(dialect, messagesStream(blocks))
        expect(readAgain(dialect, eventsOfMessage(answer))).toEqual(answer)
      }),
    )
  })

  it('a replayed response is the response, whatever its items are', () => {
    const id = fc.uuid()
    const item: fc.Arbitrary<BuiltItem> = fc.oneof(
      fc.record({ kind: fc.constant('message' as const), id, pieces }),
      fc.record({ kind: fc.constant('reasoning' as const), id, pieces }),
      fc.record({ kind: fc.constant('call' as const), id, pieces: input }),
    )
    const items = fc.uniqueArray(item, { maxLength: 5, selector: (each) => each.id })
    fc.assert(
      fc.property(
        items,
        fc.constantFrom('completed' as const, 'incomplete' as const),
        (built, ending) => {
          const dialect = EVENT_DIALECTS.responses
          const answer = answerOf(dialect, responsesStream(built, ending))
          expect(readAgain(dialect, eventsOfResponse(answer))).toEqual(answer)
        },
      ),
    )
  })

  const begun = { id: 'resp_1', object: 'response', model: 'm' }
  const call = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'n' }
  const code = { type: 'code_interpreter_call', id: 'ci_1', code: null }
  const written = { type: 'custom_tool_call', id: 'ct_1', call_id: 'call_2', name: 'n' }
  const added = (item: JsonObject) => ({ type: 'response.output_item.added', item })
  const done = (item: JsonObject) => ({ type: 'response.output_item.done', item })
  const ended = (status: string) => ({
    type: `response.${status}`,
    response: { ...begun, status },
  })

  it.each([
    [
      'whose failure cut the input of a tool',
      [
        added(call),
        { type: 'response.function_call_arguments.delta', output_index: 0, delta: '{"a"' },
        added(code),
        ended('failed'),
      ],
    ],
    [
      'with a tool whose text is null',
      [
        added(code),
        done(code),
        added(written),
        done({ ...written, input: null }),
        ended('completed'),
      ],
    ],
  ])('a replayed response %s is the response', (_, events) => {
    const dialect = EVENT_DIALECTS.responses
    const answer = answerOf(dialect, [{ type: 'response.created', response: begun }, ...events])
    expect(readAgain(dialect, eventsOfResponse(answer))).toEqual(answer)
  })

  it('a replayed response has all annotations, however many these are', () => {
    const annotations = Array.from({ length: 1_001 }, () => ({ type: 'url_citation' }))
    const content = [{ type: 'output_text', text: 'a', annotations }]
    const item = { type: 'message', id: 'msg_1', role: 'assistant', content }
    const answer = { ...begun, status: 'completed', output: [item] }
    expect(readAgain(EVENT_DIALECTS.responses, eventsOfResponse(answer))).toEqual(answer)
  })

  it('a replayed message whose provider gave no number of tokens is the message', () => {
    const dialect = EVENT_DIALECTS.messages
    const usage = { output_tokens: null }
    const events = messagesStream([]).map((event) => ({
      ...event,
      ...(event.type === 'message_delta' ? { usage } : {}),
      ...(event.type === 'message_start'
        ? { message: { ...(event.message as JsonObject), usage: { input_tokens: 1 } } }
        : {}),
    }))
    const answer = answerOf(dialect, events)
    expect(readAgain(dialect, eventsOfMessage(answer))).toEqual(answer)
  })

  it('an answer that did not end cannot be replayed', () => {
    const message = { ...answerOf(EVENT_DIALECTS.messages, messagesStream([])), stop_reason: null }
    expect(() => replayAnswer(EVENT_DIALECTS.messages, eventsOfMessage(message))).toThrow()
  })
})
