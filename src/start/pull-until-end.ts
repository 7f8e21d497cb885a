import { setTimeout as sleep } from 'node:timers/promises'
import type { PullReply } from '../../enclave/protocol/messages.ts'
import type { EnclaveClient } from '../enclaves/enclave-client.ts'

/**
 * Gives `pull` of an enclave that this process will end. After `expectEnd`, an enclave that is out of reach is no fault:
 * it ends in good order, when all it sealed is committed, so its pulls are answered with nothing more.
 */
export function pullUntilEnd(enclave: Pick<EnclaveClient, 'pull'>): {
  readonly pull: EnclaveClient['pull']
  expectEnd(): void
} {
  let isEnding = false
  let last: PullReply | null = null
  return {
    expectEnd: () => {
      isEnding = true
    },
    pull: async (request, signal) => {
      try {
        last = await enclave.pull(request, signal)
        return last
      } catch (error) {
        if (!isEnding || last === null || signal.aborted) throw error
        await sleep(request.wait_ms, undefined, { signal })
        return { ...last, head: null, completions: [], documents: {} }
      }
    },
  }
}
