import { readFile } from 'node:fs/promises'
import { FormatError } from '#attestation/errors.ts'
import { SoftwareNsmError } from './nsm/development-root.ts'
import { parseGivenMeasurements } from './nsm/measured-source.ts'
import { serveSoftwareNsm } from './nsm/nsm-server.ts'

/** The message of run-nsm to its parent process. */
type NsmReady = {
  readonly kind: 'ready'
  /** Root certificate of the module's documents. */
  readonly rootFile: string
}

/**
 * A program: the software security module on a socket, for an enclave or a development image that
 * is started separately. Usage: `node run-nsm.ts SOCKET ROOT-FILE [MEASUREMENTS-FILE]`. Ends at
 * SIGTERM, at SIGINT, or when its parent's IPC channel closes.
 */
const [socketPath, rootFile, measurementsFile] = process.argv.slice(2)
if (socketPath === undefined || rootFile === undefined) {
  process.stderr.write('run-nsm: expected SOCKET ROOT-FILE [MEASUREMENTS-FILE]\n')
  process.exit(2)
}
for (const event of ['disconnect', 'SIGTERM', 'SIGINT']) process.once(event, () => process.exit(0))
try {
  const measurements =
    measurementsFile === undefined ? null : parseGivenMeasurements(await readFile(measurementsFile))
  const server = await serveSoftwareNsm({ socketPath, rootFile, measurements })
  const ready: NsmReady = { kind: 'ready', rootFile: server.rootFile }
  if (process.send === undefined) process.stdout.write(`${JSON.stringify(ready)}\n`)
  else process.send(ready)
} catch (error) {
  if (!(error instanceof SoftwareNsmError || error instanceof FormatError)) throw error
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
}
