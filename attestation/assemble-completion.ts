import { type Assembly, addChoice, emptyChoice, finishChoice } from './assemble-choice.ts'
import { checkChunk } from './check-chunk.ts'
import { isProofMember } from './completion-hash.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, setMember } from './json/value.ts'

/**
 * The chat completion (interface 2.2) that a stream's chunks amount to: what a record of the stream
 * holds, and what a caller who kept the chunks recomputes the hash from. Only chunks that every
 * reader makes the same of amount to one. README.md, Assembling a stream, has the rules. Throws
 * FormatError as checkChunk.
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
 * Adds one chunk and gives the same assembly. It is changed in place: a copy for each chunk would
 * make a long stream with logprobs quadratic. Proof members are left out. Throws FormatError as
 * checkChunk, and then has added nothing.
 */
export function addChunk(assembly: Assembly, chunk: JsonObject): Assembly {
  checkChunk(assembly, chunk)
  for (const [name, value] of Object.entries(chunk)) {
    if (name === 'choices') addChoices(assembly, value)
    else if (name !== 'object' && value !== null && !isProofMember(name)) assembly.members.set(name, value)
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

/** The form of `choices` was checked; what is not of it is not there. */
function addChoices(assembly: Assembly, choices: Json): void {
  for (const choice of isJsonArray(choices) ? choices : []) {
    if (!isJsonObject(choice) || typeof choice.index !== 'number') continue
    const known = assembly.choices.get(choice.index) ?? emptyChoice()
    assembly.choices.set(choice.index, known)
    addChoice(known, choice)
  }
}
