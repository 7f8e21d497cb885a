import type { CommitsStore } from '../stores/commits.ts'

/** The relayer whose nonces are given out. */
export type NoncedRelayer = {
  /** 0x, lower case. */
  readonly address: string
  /** Nonce of its first anchor; asked when the database has never seen this relayer. */
  readonly firstNonce: () => Promise<number>
}

/**
 * The nonces of one relayer, for all committers of this process: they commit one after the other, so that none takes the
 * nonce of another. What the other gateways on the database take still shows as CommitRaceLost.
 */
export type RelayerNonces = {
  /** Reads the next nonce anew. Throws what the database and `firstNonce` throw. */
  refresh(): Promise<void>
  /** Runs a commit with the next nonce. It counts as taken when `run` resolves; after a failure it is read anew. */
  use<Result>(run: (nonce: number) => Promise<Result>): Promise<Result>
}

/** Nonces of `relayer`, as the database counts them. */
export function createRelayerNonces({
  commits,
  relayer,
}: {
  readonly commits: Pick<CommitsStore, 'nextNonce' | 'openRelayer'>
  readonly relayer: NoncedRelayer
}): RelayerNonces {
  let next: number | null = null
  let last: Promise<unknown> = Promise.resolve()

  function queue<Result>(run: () => Promise<Result>): Promise<Result> {
    const turn = last.then(run, run)
    last = turn.catch(() => undefined)
    return turn
  }

  return {
    refresh: () =>
      queue(async () => {
        next = null
        next = await readNonce(commits, relayer)
      }),
    use: (run) =>
      queue(async () => {
        const nonce = next ?? (await readNonce(commits, relayer))
        next = null
        const result = await run(nonce)
        next = nonce + 1
        return result
      }),
  }
}

async function readNonce(
  commits: Pick<CommitsStore, 'nextNonce' | 'openRelayer'>,
  { address, firstNonce }: NoncedRelayer,
): Promise<number> {
  const stored = await commits.nextNonce(address)
  if (stored !== null) return stored
  await commits.openRelayer(address, await firstNonce())
  const opened = await commits.nextNonce(address)
  if (opened === null) throw new Error(`expected relayer ${address} in the database`)
  return opened
}
