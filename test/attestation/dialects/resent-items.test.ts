import type { BetaContentBlock } from '@anthropic-ai/sdk/resources/beta/messages'
import type { ResponseOutputItem } from 'openai/resources/responses/responses'
import { expect, it } from 'vitest'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { messageOf } from './messages-streams.ts'
import { readAll } from './readers.ts'
import { responseOf } from './responses-streams.ts'

const status = 'completed'
const call_id = 'call_1'
const container_id = 'cntr_1'
const tool_use_id = 'srvtoolu_1'
const URL = 'https://a.example'
const NAMES = { file_id: 'f', file_ids: ['f'], container_id, skill_id: 's' }

/** Members of one item of every type that OpenAI's SDK knows in an answer. */
const ITEM_MEMBERS: { readonly [Type in ResponseOutputItem['type']]: JsonObject } = {
  message: {
    role: 'assistant',
    content: [
      {
        type: 'output_text',
        text: 'a',
        annotations: [{ type: 'container_file_citation', container_id, file_id: 'f' }],
      },
    ],
  },
  reasoning: { summary: [], encrypted_content: 'AA==' },
  function_call: { call_id, name: 'f', arguments: '{}' },
  function_call_output: { call_id, output: 'a' },
  custom_tool_call: { call_id, name: 'f', input: 'a' },
  custom_tool_call_output: { call_id, output: [{ type: 'input_text', text: 'a' }] },
  web_search_call: { action: { type: 'search', query: 'a', sources: [{ type: 'url', url: URL }] } },
  file_search_call: {
    queries: ['a'],
    results: [{ file_id: 'f', text: 'a', attributes: { container_id } }],
  },
  code_interpreter_call: { container_id, code: null, outputs: [{ type: 'logs', logs: 'a' }] },
  image_generation_call: { result: 'AA==' },
  computer_call: { call_id, pending_safety_checks: [{ id: 'sc_1' }], action: { type: 'wait' } },
  computer_call_output: {
    call_id,
    output: { type: 'computer_screenshot', image_url: 'data:image/png;base64,AA==' },
  },
  shell_call: {
    call_id,
    action: { commands: ['ls'], max_output_length: null, timeout_ms: null },
    environment: { type: 'container_reference', container_id },
  },
  shell_call_output: {
    call_id,
    max_output_length: null,
    output: [{ stdout: 'a', stderr: '', outcome: { type: 'exit', exit_code: 0 } }],
  },
  local_shell_call: { call_id, action: { type: 'exec', command: ['ls'], env: { file_id: 'a' } } },
  local_shell_call_output: { output: 'a' },
  apply_patch_call: { call_id, operation: { type: 'create_file', path: 'a', diff: '+a' } },
  apply_patch_call_output: { call_id },
  mcp_call: {
    name: 'f',
    server_label: 's',
    arguments: '{"file_id":"f"}',
    output: 'a',
    approval_request_id: 'mcpr_1',
  },
  mcp_list_tools: {
    server_label: 's',
    tools: [{ name: 'f', input_schema: { properties: NAMES } }],
  },
  mcp_approval_request: { name: 'f', server_label: 's', arguments: '{}' },
  mcp_approval_response: { approval_request_id: 'mcpr_1', approve: true },
  tool_search_call: { call_id, execution: 'server', arguments: NAMES },
  tool_search_output: {
    call_id,
    execution: 'server',
    tools: [{ type: 'function', name: 'f', strict: null, parameters: { properties: NAMES } }],
  },
  additional_tools: {
    role: 'assistant',
    tools: [{ type: 'code_interpreter', container: { type: 'auto' } }],
  },
  compaction: { encrypted_content: 'AA==' },
  program: { call_id, code: 'a', fingerprint: 'a' },
  program_output: { call_id, result: 'a' },
}

/** An item of this type, with other members. */
const itemOf = (type: keyof typeof ITEM_MEMBERS, members: JsonObject = {}): JsonObject => ({
  type,
  id: 'i',
  status,
  ...ITEM_MEMBERS[type],
  ...members,
})

type BlockType = Exclude<BetaContentBlock['type'], 'fallback'>

/** Members of one block of every type that Anthropic's SDK knows. A `fallback` is refused. */
const BLOCK_MEMBERS: { readonly [Type in BlockType]: JsonObject } = {
  text: {
    text: 'a',
    citations: [{ type: 'char_location', cited_text: 'a', document_index: 0, file_id: 'f' }],
  },
  thinking: { thinking: 'a', signature: 'AA==' },
  redacted_thinking: { data: 'AA==' },
  tool_use: { id: 'i', name: 'f', input: { type: 'file', ...NAMES } },
  server_tool_use: { id: 'i', name: 'f', input: NAMES },
  mcp_tool_use: { id: 'i', name: 'f', server_name: 's', input: NAMES },
  mcp_tool_result: { tool_use_id, is_error: false, content: [{ type: 'text', text: 'a' }] },
  mcp_tool_listing: {
    mcp_server_name: 's',
    tools: [{ name: 'f', input_schema: { file: { file_id: 'f' } } }],
  },
  web_search_tool_result: {
    tool_use_id,
    content: [{ type: 'web_search_result', url: URL, encrypted_content: 'AA==' }],
  },
  web_fetch_tool_result: {
    tool_use_id,
    content: {
      type: 'web_fetch_result',
      url: URL,
      content: { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'a' } },
    },
  },
  advisor_tool_result: { tool_use_id, content: { type: 'advisor_result', text: 'a' } },
  code_execution_tool_result: { tool_use_id, content: executed('code_execution') },
  bash_code_execution_tool_result: { tool_use_id, content: executed('bash_code_execution') },
  text_editor_code_execution_tool_result: {
    tool_use_id,
    content: { type: 'text_editor_code_execution_create_result', is_file_update: false },
  },
  tool_search_tool_result: {
    tool_use_id,
    content: {
      type: 'tool_search_tool_search_result',
      tool_references: [{ type: 'tool_reference', tool_name: 'f' }],
    },
  },
  compaction: { content: 'a', encrypted_content: 'AA==' },
  // An answer may hold this block. It is refused in a request.
  container_upload: { file_id: 'f' },
}

function executed(name: string): JsonObject {
  const content = [{ type: `${name}_output`, file_id: 'f' }]
  return { type: `${name}_result`, return_code: 0, stdout: 'a', stderr: '', content }
}

const ITEMS = (Object.keys(ITEM_MEMBERS) as (keyof typeof ITEM_MEMBERS)[]).map(
  (type) => [type, itemOf(type)] as const,
)
const BLOCKS = Object.entries(BLOCK_MEMBERS).map(([type, members]): [string, JsonObject] => [
  type,
  { type, ...members },
])

const hiddenItem = (item: JsonObject) => EVENT_DIALECTS.responses.findHidden({ input: [item] })
const hiddenBlock = (block: JsonObject) =>
  EVENT_DIALECTS.messages.findHidden({ messages: [{ role: 'assistant', content: [block] }] })

it.each(ITEMS)(
  'an item %s is accepted in an answer, whole and streamed, and sent back',
  (_, item) => {
    const { responses } = EVENT_DIALECTS
    const answer = responseOf([item])
    expect(responses.readAnswer(answer)).toEqual(answer)
    const reader = responses.openStream()
    expect(readAll(reader, responses.eventsOf(answer)).code).toBeNull()
    expect(reader.response()).toEqual(answer)
    expect(hiddenItem(item)).toBeNull()
  },
)

it.each(BLOCKS)('a block %s is accepted in an answer, whole and streamed', (_, block) => {
  const { messages } = EVENT_DIALECTS
  const answer = messageOf([block])
  expect(messages.readAnswer(answer)).toEqual(answer)
  const reader = messages.openStream()
  expect(readAll(reader, messages.eventsOf(answer)).code).toBeNull()
})

it.each(BLOCKS)(
  'a block %s can be sent back, unless it is a file in a container',
  (type, block) => {
    const path = hiddenBlock(block)?.path ?? null
    expect(path).toEqual(type === 'container_upload' ? ['messages', 0, 'content', 0] : null)
  },
)

// Each of these is in formats.md, What is refused.
it.each(
  Object.entries<JsonObject>({
    'a generated image without its result': itemOf('image_generation_call', { result: null }),
    'a screenshot by its id': itemOf('computer_call_output', {
      output: { type: 'computer_screenshot', file_id: 'f' },
    }),
    'a file in the answer of a tool': itemOf('function_call_output', {
      output: [{ type: 'input_file', file_id: 'f' }],
    }),
    'a tool with a container by its id': itemOf('additional_tools', {
      tools: [{ type: 'code_interpreter', container: container_id }],
    }),
    'a shell with a container by its id': itemOf('tool_search_output', {
      tools: [{ type: 'shell', environment: { type: 'container_reference', container_id } }],
    }),
    'a call of a code interpreter without its code': {
      type: 'code_interpreter_call',
      id: 'i',
      container_id,
    },
    'a container in an item of another type': { type: 'new_call', id: 'i', container_id },
    'a reference to an item': { type: 'item_reference', id: 'i' },
  }),
)('an item is refused that is %s', (_, item) => {
  expect(hiddenItem(item)?.why).toEqual(expect.any(String))
})
