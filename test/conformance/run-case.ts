import { runCommand } from '../support/run-command.ts'
import { type ChainEndpoint, startChainEndpoint } from './chain-endpoint.ts'
import { wordsOf } from './command-line.ts'
import type { Run } from './judge.ts'
import { type ConformanceCase, VECTORS } from './manifest.ts'

/** Runs a case through our own command line, in this process; one at a time. */
export async function runCase(one: ConformanceCase): Promise<Run> {
  const { chain } = one.demands
  const endpoint: ChainEndpoint | null =
    chain === undefined ? null : await startChainEndpoint(chain)
  try {
    const words = wordsOf(one, { folder: VECTORS, rpcUrl: endpoint?.url ?? null })
    return { ...(await runCommand(...words)), endedFor: null }
  } finally {
    await endpoint?.close()
  }
}
