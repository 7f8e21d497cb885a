import { expect, it } from 'vitest'
import { NEW_ENDPOINT } from '#src/enclaves/endpoint-state.ts'
import { NO_FIGURES } from '#src/verified/commits/commit-figures.ts'
import { createEnclaveCommits } from '#src/verified/commits/enclave-commits.ts'
import { ANCHORED_AT_ONCE } from './run-committer.ts'

const NOTARY = '0xaa'
const OTHER = '0xbb'
const signal = new AbortController().signal
const records = { findByIndex: async () => null }

/** A committer that shows that it was asked by failing with `name`. */
const committerOf = (name: string) => ({
  waitFor: () => Promise.reject(new Error(name)),
  isStandby: () => false,
  status: () => ({
    ...NO_FIGURES,
    phase: 'following' as const,
    fault: null,
    failingForMs: 0,
    notary: NOTARY,
    size: 0,
    waiting: 0,
  }),
})

/** An endpoint whose log is followed by a committer of this name; null: no longer followed. */
function endpointOf(
  name: string | null,
  {
    notary = NOTARY,
    held = [notary],
  }: { readonly notary?: string; readonly held?: readonly string[] } = {},
) {
  const hasHeld = (wanted: string) => held.includes(wanted)
  return { name, state: { ...NEW_ENDPOINT, notary }, hasHeld }
}

it.each([
  [
    'asks the endpoint that follows the log',
    [endpointOf('other', { notary: OTHER }), endpointOf('follower')],
    'follower',
  ],
  [
    'asks it also when another endpoint of the same enclave was drained',
    [endpointOf(null), endpointOf('follower')],
    'follower',
  ],
  [
    'asks it before one that has held the enclave earlier',
    [endpointOf('earlier', { notary: OTHER, held: [NOTARY, OTHER] }), endpointOf('follower')],
    'follower',
  ],
  [
    'asks the endpoint where the enclave was when it is gone',
    [endpointOf('earlier', { notary: OTHER, held: [NOTARY, OTHER] })],
    'earlier',
  ],
  [
    'is told that nobody has it when no endpoint follows the log',
    [endpointOf(null)],
    'is not stored',
  ],
])('a caller who waits for a leaf %s', async (_, endpoints, expected) => {
  const commits = createEnclaveCommits(records, ANCHORED_AT_ONCE)
  for (const { name, ...endpoint } of endpoints) {
    const follower = commits.follow(endpoint, committerOf(name ?? 'drained'), async () => undefined)
    if (name === null) await follower.stop()
  }
  await expect(commits.waitFor(NOTARY, 0, signal)).rejects.toThrow(expected)
})
