import { isJsonArray, isJsonObject, type JsonObject, memberOf } from '../../json/value.ts'
import { listIn } from '../dialect.ts'

/**
 * The events of a stream that assembles to this message. Throws FormatError `invalid_form` for a
 * message that did not end.
 */
export function eventsOfMessage(message: JsonObject): readonly JsonObject[] {
  const { stop_reason, stop_sequence = null, usage, ...others } = message
  const given = isJsonObject(usage) ? usage : {}
  const moved = Object.fromEntries(
    DELTA_MEMBERS.flatMap((name) => {
      const value = memberOf(others, name)
      return value === undefined ? [] : [[name, value]]
    }),
  )
  const beginning = {
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: { ...given, output_tokens: 0 },
  }
  const cleared = Object.fromEntries(Object.keys(moved).map((name) => [name, null]))
  return [
    { type: 'message_start', message: { ...others, ...cleared, ...beginning } },
    ...listIn(message, 'content').flatMap(eventsOfBlock),
    {
      type: 'message_delta',
      delta: { stop_reason: stop_reason ?? null, stop_sequence, ...moved },
      usage: given,
    },
    { type: 'message_stop' },
  ]
}

/** Members that a message can have only at its end. */
const DELTA_MEMBERS = ['stop_details', 'container']

function eventsOfBlock(block: JsonObject, index: number): readonly JsonObject[] {
  const [empty, deltas] = splitBlock(block)
  return [
    { type: 'content_block_start', index, content_block: { ...block, ...empty } },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
    { type: 'content_block_stop', index },
  ]
}

/** The members that a block has at its start, and the deltas that fill them. */
function splitBlock(block: JsonObject): readonly [JsonObject, readonly JsonObject[]] {
  const signature = memberOf(block, 'signature') ?? ''
  switch (block.type) {
    case 'text': {
      const citations = memberOf(block, 'citations')
      const cited = (isJsonArray(citations) ? citations : []).map((citation) => ({
        type: 'citations_delta',
        citation,
      }))
      const empty: JsonObject = cited.length === 0 ? { text: '' } : { text: '', citations: [] }
      return [empty, [{ type: 'text_delta', text: memberOf(block, 'text') ?? '' }, ...cited]]
    }
    case 'thinking': {
      const thinking = { type: 'thinking_delta', thinking: memberOf(block, 'thinking') ?? '' }
      const signed = signature === '' ? [] : [{ type: 'signature_delta', signature }]
      return [{ thinking: '', signature: '' }, [thinking, ...signed]]
    }
    case 'tool_use':
    case 'server_tool_use':
    case 'mcp_tool_use': {
      const partial_json = JSON.stringify(memberOf(block, 'input') ?? {})
      return [{ input: {} }, [{ type: 'input_json_delta', partial_json }]]
    }
    case 'compaction':
      return [
        { content: null },
        [{ type: 'compaction_delta', content: memberOf(block, 'content') ?? null }],
      ]
    default:
      return [{}, []]
  }
}
