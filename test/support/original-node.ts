import { KNOWN_MEMBERS } from '#src/nodes/protocol/known-members.ts'
import type { DrawScript } from './drawing-node.ts'
import { type AnswerScript, answerError, answerWith } from './scripted-node.ts'

/**
 * What the public node client (0.0.19) does with a chat request, where it differs from its
 * protocol: it calls its library with the request's members as named arguments. A member that the
 * library does not know is a TypeError, reported as 500. Some members are arguments of the library
 * itself; the four with which a caller could do harm are checked here.
 */
export function answerAsLibrary(text: string): AnswerScript {
  return (call, node) => {
    const names = Object.keys(call.chat_request)
    const own = names.find((name) => LIBRARY_ARGUMENTS.has(name))
    if (own !== undefined) throw new Error(`the library took ${own} for its own`)
    const unknown = names.find((name) => !KNOWN_MEMBERS.has(name))
    const script =
      unknown === undefined
        ? answerWith(text)
        : answerError(
            500,
            `AsyncCompletions.create() got an unexpected keyword argument '${unknown}'`,
          )
    return script(call, node)
  }
}

const LIBRARY_ARGUMENTS: ReadonlySet<string> = new Set([
  'extra_body',
  'extra_headers',
  'extra_query',
  'timeout',
])

/** Draws what its pipeline draws, and ignores `size`. */
export function drawAsPipeline(drawn: Buffer): DrawScript {
  return ({ request_id, n }, node) =>
    node.send({ request_id, images: Array(n).fill(drawn.toString('base64')), error: null })
}
