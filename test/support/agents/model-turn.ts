import { randomBytes } from 'node:crypto'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'

/** A call of one of the agent's tools. `input`: its JSON text. */
export type ToolCall = { readonly name: string; readonly input: string }

/** What a model says in one answer. Without calls, the task has ended. */
export type Turn = {
  readonly reasoning: string
  readonly text: string
  readonly calls: readonly ToolCall[]
}

/** What a shape reads of a call. */
export type AgentRequest = { readonly model: string; readonly tools: Json }

/** Writes a turn as one provider streams it. */
export type Shape = (turn: Turn, request: AgentRequest) => string

export const hex = (bytes: number) => randomBytes(bytes).toString('hex')
/** The pieces of a text, each with the blanks before it, as deltas bring them. */
export const piecesOf = (text: string): readonly string[] => text.match(/\s*[^\s]+|\s+$/g) ?? []

export const unnamed = (event: JsonObject) => `data: ${JSON.stringify(event)}\n\n`
export const named = (event: JsonObject) => `event: ${event.type}\n${unnamed(event)}`
export const DONE = 'data: [DONE]\n\n'

/** The word that an agent copies: only its file has it, so only a tool of the agent can know it. */
const WORD = /word-[0-9a-f]{16}/
/** The agent's folder, in its prompt. */
const FOLDER = /Folder: ([^\s"\\]+)/

/** The prompt of the task in `folder`, whose `in.txt` has a word. */
export const copyPrompt = (folder: string) =>
  `Copy the word of in.txt to out.txt, and count its characters. Folder: ${folder}`
export const newWord = () => `word-${hex(8)}`

/** The steps of the task, with the tools of the agent that offers this shell. */
const STEPS: Readonly<
  Record<string, (folder: string, word: string) => readonly (readonly [string, JsonObject][])[]>
> = {
  exec_command: (_, word) => [
    [
      ['exec_command', { cmd: 'ls' }],
      ['exec_command', { cmd: 'cat in.txt' }],
    ],
    [['exec_command', { cmd: `printf %s ${word} > out.txt` }]],
    [['exec_command', { cmd: 'wc -c out.txt > count.txt' }]],
  ],
  Bash: (folder, word) => [
    [
      ['Bash', { command: 'ls' }],
      ['Read', { file_path: `${folder}/in.txt` }],
    ],
    [['Write', { file_path: `${folder}/out.txt`, content: word }]],
    [['Bash', { command: 'wc -c out.txt > count.txt' }]],
  ],
  bash: (folder, word) => [
    [
      ['bash', { command: 'ls', description: 'Lists the files' }],
      ['read', { filePath: `${folder}/in.txt` }],
    ],
    [['write', { filePath: `${folder}/out.txt`, content: word }]],
    [['bash', { command: 'wc -c out.txt > count.txt', description: 'Counts' }]],
  ],
}

/**
 * The turn after the results of the tools in a request: the next calls of the task, or its last
 * text. A request without tools, such as for a title, gets a text.
 */
export function nextTurn(dialect: DialectName, body: JsonObject): Turn {
  const text = JSON.stringify(body)
  const offered = Object.entries(STEPS).find(([shell]) => text.includes(`"name":"${shell}"`))
  const [, folder = ''] = FOLDER.exec(text) ?? []
  let left = resultsIn(dialect, body)
  for (const step of offered?.[1](folder, WORD.exec(text)?.[0] ?? 'word') ?? []) {
    if (left === 0)
      return {
        reasoning: 'The user wants a copy. I go on with the next step.',
        text: 'I do the next step.',
        calls: step.map(([name, input]) => ({ name, input: JSON.stringify(input) })),
      }
    left -= step.length
  }
  return { reasoning: 'Nothing is left to do.', text: 'The copy is done.', calls: [] }
}

/** How many results of tools a request has. */
function resultsIn(dialect: DialectName, body: JsonObject): number {
  const { input = [], messages = [] } = body as Record<string, readonly JsonObject[]>
  if (dialect === 'responses')
    return input.filter(({ type }) => type === 'function_call_output').length
  if (dialect === 'chat') return messages.filter(({ role }) => role === 'tool').length
  return messages
    .flatMap(({ content }) => (Array.isArray(content) ? (content as JsonObject[]) : []))
    .filter(({ type }) => type === 'tool_result').length
}
