import {
  ANSWER_SIZE_MAX,
  isWithinSize,
  type JsonSize,
  measureJson,
} from '#attestation/json/json-size.ts'
import { AffidavitError } from './errors.ts'

/** Limits for an answer with its proof, or for all chunks of a stream. */
const SIZE_MAX: JsonSize = {
  containers: 4 * ANSWER_SIZE_MAX.containers,
  members: 4 * ANSWER_SIZE_MAX.members,
  items: 2 * ANSWER_SIZE_MAX.items,
}

/**
 * Counts the values in an answer's JSON before parsing: 64 MiB of `0,` would take three gigabytes.
 * `add` throws AffidavitError `answer_too_large` above the size that an enclave signs.
 */
export function createAnswerSize(): { add(json: Uint8Array | string): void } {
  let sum: JsonSize = { containers: 0, members: 0, items: 0 }
  return {
    add(json) {
      const { containers, members, items } = measureJson(json)
      sum = {
        containers: sum.containers + containers,
        members: sum.members + members,
        items: sum.items + items,
      }
      if (!isWithinSize(sum, SIZE_MAX))
        throw new AffidavitError(
          'answer_too_large',
          'the answer has more arrays, objects or members than an enclave signs',
        )
    },
  }
}
