import { addChoice, type ChoiceAssembly, emptyChoice, finishChoice } from './assemble-choice.ts'
import { isProofMember } from './completion-hash.ts'
import { FormatError } from './errors.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, setMember } from './json/value.ts'

/** The completion that a stream's chunks amount to, as far as they have come. Belongs to one stream. */
export type Assembly = {
  readonly members: Map<string, Json>
  readonly choices: Map<number, ChoiceAssembly>
}

/**
 * The chat completion (interface 2.2) that a stream's chunks amount to: what a record of the stream holds, and what
 * a caller who kept the chunks recomputes the hash from. README.md, Assembling a stream, has the rules. Throws
 * FormatError `invalid_chunk`.
 */
export function assembleCompletion(chunks: readonly JsonObject[]): JsonObject {
  const assembly = emptyAssembly()
  for (const chunk of chunks) addChunk(assembly, chunk)
  return finishAssembly(assembly)
}

/** An assembly that no chunk was added to. */
export function emptyAssembly(): Assembly {
  return { members: new Map(), choices: new Map() }
}

/**
 * Adds one chunk and gives the same assembly. It is changed in place: a copy for each chunk would make a long
 * stream with logprobs quadratic. Proof members are left out. Throws FormatError `invalid_chunk` on a chunk whose
 * choices, deltas or tool calls are not of the shape that interface 2.2 gives them, and then has added part of it.
 */
export function addChunk(assembly: Assembly, chunk: JsonObject): Assembly {
  for (const [name, value] of Object.entries(chunk)) {
    if (name === 'choices') addChoices(assembly, value)
    else if (name !== 'object' && value !== null && !isProofMember(name)) addMember(assembly, name, value)
  }
  return assembly
}

/** The completion as far as chunks were added. The assembly may go on after it. */
export function finishAssembly(assembly: Assembly): JsonObject {
  const completion: Record<string, Json> = { object: 'chat.completion' }
  for (const [name, value] of assembly.members) setMember(completion, name, value)
  const choices = [...assembly.choices.entries()].sort(([left], [right]) => left - right)
  completion.choices = choices.map(([index, choice]) => finishChoice(index, choice))
  return completion
}

/** Members of which the first value counts; of all others it is the last. */
const FIRST_WINS: ReadonlySet<string> = new Set(['id', 'created', 'model'])

function addMember(assembly: Assembly, name: string, value: Json): void {
  const known = assembly.members.get(name)
  // Some providers begin with a chunk of content filter results whose id and model are empty.
  if (FIRST_WINS.has(name) && known !== undefined && known !== '') return
  assembly.members.set(name, value)
}

function addChoices(assembly: Assembly, choices: Json): void {
  if (choices === null) return
  if (!isJsonArray(choices)) throw new FormatError('invalid_chunk', 'expected choices to be an array')
  for (const [position, choice] of choices.entries()) {
    if (!isJsonObject(choice)) throw new FormatError('invalid_chunk', 'expected each choice to be an object')
    const index = choice.index ?? position
    if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0)
      throw new FormatError('invalid_chunk', 'expected the index of a choice to be a whole number from 0')
    const known = assembly.choices.get(index) ?? emptyChoice()
    assembly.choices.set(index, known)
    addChoice(known, choice)
  }
}
