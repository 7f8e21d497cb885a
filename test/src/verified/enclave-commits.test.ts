import { describe, expect, it } from 'vitest'
import { NEW_SEAT } from '../../../src/enclaves/seat-state.ts'
import { type Committer, NO_FIGURES } from '../../../src/verified/committer.ts'
import { createEnclaveCommits } from '../../../src/verified/enclave-commits.ts'

const NOTARY = '0xaa'
const OTHER = '0xbb'
const signal = new AbortController().signal
const records = { findByIndex: async () => null }

/** A seat whose committer, when it has one, tells that it was asked by failing with `name`. */
function seatOf(
  name: string | null,
  { notary = NOTARY, held = [notary] }: { readonly notary?: string; readonly held?: readonly string[] } = {},
) {
  const committer: Committer | null =
    name === null
      ? null
      : {
          start: () => undefined,
          stop: async () => undefined,
          waitFor: () => Promise.reject(new Error(name)),
          status: () => ({
            ...NO_FIGURES,
            phase: 'following',
            fault: null,
            failingForMs: 0,
            notary,
            size: 0,
            waiting: 0,
          }),
        }
  return {
    committer,
    state: { ...NEW_SEAT, notary },
    hasHeld: (wanted: string) => held.includes(wanted),
  }
}

describe('who waits for a leaf', () => {
  it.each([
    [
      'asks the seat that follows the log',
      [seatOf('other', { notary: OTHER }), seatOf('follower')],
      'follower',
    ],
    [
      'asks it also when another seat of the same enclave was drained',
      [seatOf(null), seatOf('follower')],
      'follower',
    ],
    [
      'asks it before one that has held the enclave earlier',
      [seatOf('earlier', { notary: OTHER, held: [NOTARY, OTHER] }), seatOf('follower')],
      'follower',
    ],
    [
      'asks the seat where the enclave was when it is gone',
      [seatOf('earlier', { notary: OTHER, held: [NOTARY, OTHER] })],
      'earlier',
    ],
    ['is told that nobody has it when no seat follows the log', [seatOf(null)], 'is not stored'],
  ])('%s', async (_, seats, expected) => {
    const commits = createEnclaveCommits(() => seats, records)
    await expect(commits.waitFor(NOTARY, 0, signal)).rejects.toThrow(expected)
  })
})
