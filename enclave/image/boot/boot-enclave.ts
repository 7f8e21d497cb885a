import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { encodeHex } from '../../../attestation/bytes.ts'
import type { EifMeasurements } from '../../../attestation/eif/registers.ts'
import { DEMO_PROVIDER_ORIGIN, GATEWAY_VSOCK_PORT, NSM_PORT } from '../settings-files.ts'
import { chooseAccelerator } from './accelerator.ts'
import { type BootFiles, openBootFiles } from './boot-files.ts'
import { startNsm } from './gateway-side.ts'
import { type Machine, startMachine } from './machine.ts'
import type { Accelerator } from './machine-arguments.ts'
import { openSocketBridge } from './socket-bridge.ts'

/** From the kernel's start to the enclave's ready line. Emulated on two cores with six times their work it takes 105 s. */
export const ENCLAVE_TIMEOUT_MS = 240_000

/** With room for the unpacked ramdisk (150 MB, held twice while it is unpacked) and the enclave's own 512 MB. */
export const MEMORY_MEBIBYTES = 1_024
export const CPUS = 2

/** An image file to boot. */
export type BootOptions = {
  readonly eifPath: string
  /** Null: whichever works. */
  readonly accelerator: Accelerator | null
  /** Port of the demonstration provider on 127.0.0.1: all that the enclave reaches. */
  readonly providerPort: number
  /** For what the machine boots from and the enclave's socket; made, for this user alone. The kernel takes 100 bytes of a path. */
  readonly folder: string
}

/** A development image whose enclave is ready. */
export type BootedEnclave = {
  readonly machine: Machine
  readonly accelerator: Accelerator
  /** Leads to the enclave, for ENCLAVE_URL. */
  readonly socketPath: string
  /** Of the image file that was booted. */
  readonly measurements: EifMeasurements
  /** Certificate of the software NSM's root. */
  readonly rootFile: string
  /** When the enclave was ready: milliseconds of performance.now(). */
  readonly readyAtMs: number
  stop(): Promise<void>
}

/**
 * Boots the development image in `eifPath` and waits until its enclave is ready. The folder is the caller's to remove.
 * Rejects with BootError or EifError.
 */
export async function bootEnclave(options: BootOptions): Promise<BootedEnclave> {
  await using started = new AsyncDisposableStack()
  const { folder } = options
  await mkdir(folder, { mode: 0o700 })
  const files = await openBootFiles(options.eifPath, folder)
  const accelerator = options.accelerator ?? (await chooseAccelerator(files.kernelPath))
  const { machine, rootFile } = await startImage(files, { ...options, accelerator })
  started.defer(() => machine.stop())
  const { atMs: readyAtMs } = await machine.waitForLine(
    'the enclave to be ready',
    isReady,
    ENCLAVE_TIMEOUT_MS,
  )
  const socketPath = join(folder, 'enclave.sock')
  const bridge = await openSocketBridge({ path: socketPath, port: machine.hostPort })
  started.defer(() => bridge.close())
  const running = started.move()
  return {
    machine,
    accelerator,
    socketPath,
    measurements: files.measurements,
    rootFile,
    readyAtMs,
    stop: () => running.disposeAsync(),
  }
}

/** Starts a machine with these files, and a software NSM that ends with it; `folder` must be private. */
export async function startImage(
  files: BootFiles,
  {
    folder,
    accelerator,
    providerPort,
  }: { readonly folder: string; readonly accelerator: Accelerator; readonly providerPort: number },
): Promise<{ readonly machine: Machine; readonly rootFile: string }> {
  const measurementsPath = join(folder, 'measurements.json')
  await writeFile(measurementsPath, writeMeasurements(files.measurements))
  const nsmSocket = join(folder, 'nsm.sock')
  const nsm = await startNsm({
    socketPath: nsmSocket,
    rootFile: join(folder, 'root.pem'),
    measurementsFile: measurementsPath,
  })
  try {
    const machine = await startMachine({
      ...files,
      accelerator,
      memoryMebibytes: MEMORY_MEBIBYTES,
      cpus: CPUS,
      guestPort: GATEWAY_VSOCK_PORT,
      outward: [
        { port: Number(new URL(DEMO_PROVIDER_ORIGIN).port), to: providerPort },
        { port: NSM_PORT, to: nsmSocket },
      ],
    })
    void machine.exited.then(() => nsm.stop())
    return { machine, rootFile: nsm.ready.rootFile }
  } catch (error) {
    await nsm.stop()
    throw error
  }
}

function writeMeasurements({ pcr0, pcr1, pcr2 }: EifMeasurements): string {
  return JSON.stringify({ 0: encodeHex(pcr0), 1: encodeHex(pcr1), 2: encodeHex(pcr2) })
}

/** The enclave's ready line (enclave/main.ts). */
function isReady(line: string): boolean {
  return line.startsWith('{"event":"ready",')
}
