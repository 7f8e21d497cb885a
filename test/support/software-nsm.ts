import { createNsmClient, type Nsm } from '#enclave/nsm/nsm.ts'
import type { SourceMeasurements } from '#src/local/nsm/measured-source.ts'
import { bootSecurityModule } from '#src/local/nsm/security-module.ts'

/** The software security module in this process, with its messages but without the socket. */
export async function openSoftwareNsm(options: {
  /** Null keeps the root in memory. */
  readonly rootFile: string | null
  /** Default: the measurements of this project's source. */
  readonly measurements?: SourceMeasurements
  readonly now: () => number
}): Promise<Nsm> {
  const module = await bootSecurityModule(options)
  return createNsmClient('software', {
    exchange: async (request) => module.processRequest(request),
    close: () => undefined,
  })
}
