import type { EnclaveDescription, EnclaveOperations } from '../api/control-operations.ts'
import { parseSocketUrl } from '../runtime/fields.ts'
import type { Enclaves, SeatDescription } from './enclaves.ts'

/** Gives the operator's operations over the enclaves of this process. */
export function createEnclaveOperations(
  enclaves: Pick<Enclaves, 'list' | 'add' | 'drain' | 'remove'>,
): EnclaveOperations {
  const at = async <Outcome>(url: string, run: (socketPath: string) => Outcome | Promise<Outcome>) => {
    const socketPath = parseSocketUrl(url)
    return socketPath === null ? 'invalid' : run(socketPath)
  }
  return {
    list: async () => enclaves.list().map(describe),
    add: (url) => at(url, enclaves.add),
    drain: (url) => at(url, enclaves.drain),
    remove: (url) => at(url, enclaves.remove),
  }
}

function describe({ socketPath, ...seat }: SeatDescription): EnclaveDescription {
  return { url: `unix:${socketPath}`, ...seat }
}
