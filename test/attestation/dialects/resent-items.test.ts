import type { BetaContentBlock } from '@anthropic-ai/sdk/resources/beta/messages'
import type { ResponseOutputItem } from 'openai/resources/responses/responses'
import { describe, expect, it } from 'vitest'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { eventsOfMessage } from '#attestation/dialects/messages/write-events.ts'
import { eventsOfResponse } from '#attestation/dialects/responses/write-events.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { readAll } from './readers.ts'

const status = 'completed'
const call_id = 'call_1'
const container_id = 'cntr_1'
const tool_use_id = 'srvtoolu_1'
const NAMES = { file_id: 'f', file_ids: ['f'], container_id, skill_id: 's' }

/** One item of every type that OpenAI's SDK knows in an answer. */
const ITEMS = {
  message: {
    type: 'message',
    id: 'i',
    role: 'assistant',
    status,
    content: [
      {
        type: 'output_text',
        text: 'a',
        annotations: [
          {
            type: 'container_file_citation',
            container_id,
            file_id: 'f',
            filename: 'a',
            start_index: 0,
            end_index: 1,
          },
        ],
      },
    ],
  },
  reasoning: { type: 'reasoning', id: 'i', summary: [], encrypted_content: 'AA==' },
  function_call: { type: 'function_call', id: 'i', call_id, name: 'f', arguments: '{}' },
  function_call_output: { type: 'function_call_output', id: 'i', call_id, output: 'a', status },
  custom_tool_call: { type: 'custom_tool_call', id: 'i', call_id, name: 'f', input: 'a' },
  custom_tool_call_output: {
    type: 'custom_tool_call_output',
    id: 'i',
    call_id,
    output: [{ type: 'input_text', text: 'a' }],
    status,
  },
  web_search_call: {
    type: 'web_search_call',
    id: 'i',
    status,
    action: { type: 'search', query: 'a', sources: [{ type: 'url', url: 'https://a.example' }] },
  },
  file_search_call: {
    type: 'file_search_call',
    id: 'i',
    status,
    queries: ['a'],
    results: [{ file_id: 'f', text: 'a', attributes: { container_id } }],
  },
  code_interpreter_call: {
    type: 'code_interpreter_call',
    id: 'i',
    status,
    container_id,
    code: null,
    outputs: [{ type: 'logs', logs: 'a' }],
  },
  image_generation_call: { type: 'image_generation_call', id: 'i', status, result: 'AA==' },
  computer_call: {
    type: 'computer_call',
    id: 'i',
    call_id,
    status,
    pending_safety_checks: [{ id: 'sc_1' }],
    action: { type: 'wait' },
  },
  computer_call_output: {
    type: 'computer_call_output',
    id: 'i',
    call_id,
    status,
    output: { type: 'computer_screenshot', image_url: 'data:image/png;base64,AA==' },
  },
  shell_call: {
    type: 'shell_call',
    id: 'i',
    call_id,
    status,
    action: { commands: ['ls'], max_output_length: null, timeout_ms: null },
    environment: { type: 'container_reference', container_id },
  },
  shell_call_output: {
    type: 'shell_call_output',
    id: 'i',
    call_id,
    status,
    max_output_length: null,
    output: [{ stdout: 'a', stderr: '', outcome: { type: 'exit', exit_code: 0 } }],
  },
  local_shell_call: {
    type: 'local_shell_call',
    id: 'i',
    call_id,
    status,
    action: { type: 'exec', command: ['ls'], env: { file_id: 'a' } },
  },
  local_shell_call_output: { type: 'local_shell_call_output', id: 'i', output: 'a' },
  apply_patch_call: {
    type: 'apply_patch_call',
    id: 'i',
    call_id,
    status,
    operation: { type: 'create_file', path: 'a', diff: '+a' },
  },
  apply_patch_call_output: { type: 'apply_patch_call_output', id: 'i', call_id, status },
  mcp_call: {
    type: 'mcp_call',
    id: 'i',
    name: 'f',
    server_label: 's',
    arguments: '{"file_id":"f"}',
    output: 'a',
    approval_request_id: 'mcpr_1',
  },
  mcp_list_tools: {
    type: 'mcp_list_tools',
    id: 'i',
    server_label: 's',
    tools: [{ name: 'f', input_schema: { properties: NAMES } }],
  },
  mcp_approval_request: {
    type: 'mcp_approval_request',
    id: 'i',
    name: 'f',
    server_label: 's',
    arguments: '{}',
  },
  mcp_approval_response: {
    type: 'mcp_approval_response',
    id: 'i',
    approval_request_id: 'mcpr_1',
    approve: true,
  },
  tool_search_call: {
    type: 'tool_search_call',
    id: 'i',
    call_id,
    status,
    execution: 'server',
    arguments: NAMES,
  },
  tool_search_output: {
    type: 'tool_search_output',
    id: 'i',
    call_id,
    status,
    execution: 'server',
    tools: [{ type: 'function', name: 'f', strict: null, parameters: { properties: NAMES } }],
  },
  additional_tools: {
    type: 'additional_tools',
    id: 'i',
    role: 'assistant',
    tools: [{ type: 'code_interpreter', container: { type: 'auto' } }],
  },
  compaction: { type: 'compaction', id: 'i', encrypted_content: 'AA==' },
  program: { type: 'program', id: 'i', call_id, code: 'a', fingerprint: 'a' },
  program_output: { type: 'program_output', id: 'i', call_id, result: 'a', status },
} satisfies { readonly [Type in ResponseOutputItem['type']]: JsonObject & { type: Type } }

/** One block of every type that Anthropic's SDK knows in an answer. A `fallback` is refused. */
const BLOCKS = {
  text: {
    type: 'text',
    text: 'a',
    citations: [{ type: 'char_location', cited_text: 'a', document_index: 0, file_id: 'f' }],
  },
  thinking: { type: 'thinking', thinking: 'a', signature: 'AA==' },
  redacted_thinking: { type: 'redacted_thinking', data: 'AA==' },
  tool_use: { type: 'tool_use', id: 'i', name: 'f', input: { type: 'file', ...NAMES } },
  server_tool_use: { type: 'server_tool_use', id: 'i', name: 'f', input: NAMES },
  mcp_tool_use: { type: 'mcp_tool_use', id: 'i', name: 'f', server_name: 's', input: NAMES },
  mcp_tool_result: {
    type: 'mcp_tool_result',
    tool_use_id,
    is_error: false,
    content: [{ type: 'text', text: 'a' }],
  },
  mcp_tool_listing: {
    type: 'mcp_tool_listing',
    mcp_server_name: 's',
    tools: [{ name: 'f', input_schema: { file: { file_id: 'f' } } }],
  },
  web_search_tool_result: {
    type: 'web_search_tool_result',
    tool_use_id,
    content: [{ type: 'web_search_result', url: 'https://a.example', encrypted_content: 'AA==' }],
  },
  web_fetch_tool_result: {
    type: 'web_fetch_tool_result',
    tool_use_id,
    content: {
      type: 'web_fetch_result',
      url: 'https://a.example',
      content: { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'a' } },
    },
  },
  advisor_tool_result: {
    type: 'advisor_tool_result',
    tool_use_id,
    content: { type: 'advisor_result', text: 'a' },
  },
  code_execution_tool_result: {
    type: 'code_execution_tool_result',
    tool_use_id,
    content: {
      type: 'code_execution_result',
      return_code: 0,
      stdout: 'a',
      stderr: '',
      content: [{ type: 'code_execution_output', file_id: 'f' }],
    },
  },
  bash_code_execution_tool_result: {
    type: 'bash_code_execution_tool_result',
    tool_use_id,
    content: {
      type: 'bash_code_execution_result',
      return_code: 0,
      stdout: 'a',
      stderr: '',
      content: [{ type: 'bash_code_execution_output', file_id: 'f' }],
    },
  },
  text_editor_code_execution_tool_result: {
    type: 'text_editor_code_execution_tool_result',
    tool_use_id,
    content: { type: 'text_editor_code_execution_create_result', is_file_update: false },
  },
  tool_search_tool_result: {
    type: 'tool_search_tool_result',
    tool_use_id,
    content: {
      type: 'tool_search_tool_search_result',
      tool_references: [{ type: 'tool_reference', tool_name: 'f' }],
    },
  },
  compaction: { type: 'compaction', content: 'a', encrypted_content: 'AA==' },
  // An answer may hold this block. The table of refusals below has it too.
  container_upload: { type: 'container_upload', file_id: 'f' },
} satisfies {
  readonly [Type in Exclude<BetaContentBlock['type'], 'fallback'>]: JsonObject & { type: Type }
}

const response = (item: JsonObject): JsonObject => ({
  id: 'resp_1',
  object: 'response',
  model: 'm',
  status,
  output: [item],
})
const message = (block: JsonObject): JsonObject => ({
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'm',
  content: [block],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: 1, output_tokens: 2 },
})

const hiddenItem = (item: JsonObject) => EVENT_DIALECTS.responses.findHidden({ input: [item] })
const hiddenBlock = (block: JsonObject) =>
  EVENT_DIALECTS.messages.findHidden({ messages: [{ role: 'assistant', content: [block] }] })

describe('what an answer holds', () => {
  it.each(Object.entries<JsonObject>(ITEMS))(
    'an item %s is accepted in an answer, whole and streamed, and sent back',
    (_, item) => {
      const { responses } = EVENT_DIALECTS
      const answer = response(item)
      expect(responses.readAnswer(answer)).toEqual(answer)
      const reader = responses.openStream()
      expect(readAll(reader, eventsOfResponse(answer)).code).toBeNull()
      expect(reader.response()).toEqual(answer)
      expect(hiddenItem(item)).toBeNull()
    },
  )

  it.each(Object.entries<JsonObject>(BLOCKS))(
    'a block %s is accepted in an answer, whole and streamed',
    (_, block) => {
      const { messages } = EVENT_DIALECTS
      const answer = message(block)
      expect(messages.readAnswer(answer)).toEqual(answer)
      const reader = messages.openStream()
      expect(readAll(reader, eventsOfMessage(answer)).code).toBeNull()
    },
  )

  const { container_upload: upload, ...sendable } = BLOCKS
  it.each(Object.entries<JsonObject>(sendable))('a block %s can be sent back', (_, block) => {
    expect(hiddenBlock(block)).toBeNull()
  })

  // Each of these is in formats.md, What is refused.
  it.each<[string, JsonObject]>([
    ['a generated image without its result', { ...ITEMS.image_generation_call, result: null }],
    [
      'a screenshot by its id',
      { ...ITEMS.computer_call_output, output: { type: 'computer_screenshot', file_id: 'f' } },
    ],
    [
      'a file in the answer of a tool',
      { ...ITEMS.function_call_output, output: [{ type: 'input_file', file_id: 'f' }] },
    ],
    [
      'a tool with a container by its id',
      { ...ITEMS.additional_tools, tools: [{ type: 'code_interpreter', container: container_id }] },
    ],
    [
      'a shell with a container by its id',
      {
        ...ITEMS.tool_search_output,
        tools: [{ type: 'shell', environment: { type: 'container_reference', container_id } }],
      },
    ],
    [
      'a call of a code interpreter without its code',
      { type: 'code_interpreter_call', id: 'i', container_id },
    ],
    ['a container in an item of another type', { type: 'new_call', id: 'i', container_id }],
    ['a reference to an item', { type: 'item_reference', id: 'i' }],
  ])('an item is refused that is %s', (_, item) => {
    expect(hiddenItem(item)?.why).toEqual(expect.any(String))
  })

  it('a block is refused that is a file in a container', () => {
    expect(hiddenBlock(upload)?.path).toEqual(['messages', 0, 'content', 0])
  })
})
