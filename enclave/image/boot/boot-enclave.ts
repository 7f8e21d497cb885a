import { createReadStream } from 'node:fs'
import { chmod, type FileHandle, mkdir, open, stat, writeFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { encodeHex } from '#attestation/bytes.ts'
import { EIF_SECTION_HEADER_BYTES, type Section } from '#attestation/eif/format.ts'
import { type EifMeasurements, measureEif } from '#attestation/eif/measure-eif.ts'
import { IMAGE_DIGESTS } from '../eif.ts'
import { DEMO_PROVIDER_ORIGIN, GATEWAY_VSOCK_PORT, NSM_PORT } from '../settings.ts'
import { startNsm } from './host-programs.ts'
import { type Accelerator, chooseAccelerator, type Machine, startMachine } from './machine.ts'

/**
 * Time limit from the kernel's start to the enclave's ready line. An emulated enclave takes 105 s
 * on two overloaded cores.
 */
const ENCLAVE_TIMEOUT_MS = 240_000

/**
 * Memory for the enclave (512 MB) and the unpacked ramdisk (150 MB, held twice during unpacking).
 */
export const MEMORY_MEBIBYTES = 1_024
const CPUS = 2

type BootOptions = {
  readonly eifPath: string
  /** Null: chooseAccelerator chooses. */
  readonly accelerator: Accelerator | null
  /** Port of the demonstration provider on 127.0.0.1, the only port that the enclave can reach. */
  readonly providerPort: number
  /**
   * Folder for the boot files and the enclave's socket. bootEnclave creates it for this user only.
   * The kernel limits the path of a socket to 100 bytes.
   */
  readonly folder: string
}

export type BootedEnclave = {
  readonly machine: Machine
  readonly accelerator: Accelerator
  /** Socket for connections to the enclave, for ENCLAVE_URL. */
  readonly socketPath: string
  readonly measurements: EifMeasurements
  /** File with the root certificate of the software NSM. */
  readonly rootFile: string
  /** Time when the enclave was ready: milliseconds of performance.now(). */
  readonly readyAtMs: number
  stop(): Promise<void>
}

/**
 * Boots the development image in `eifPath` and waits until its enclave is ready. The caller removes
 * the folder later. Rejects with BootError or EifError.
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

/**
 * Starts a machine with these files, and a software NSM that stops with the machine. `folder` must
 * be private.
 */
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

/** Returns true if this line is the enclave's ready line (enclave/main.ts). */
function isReady(line: string): boolean {
  return line.startsWith('{"event":"ready",')
}

type BootFiles = {
  readonly kernelPath: string
  /** All ramdisks of the image in one file. The kernel unpacks them, in order, into one tree. */
  readonly ramdiskPath: string
  readonly cmdline: string
  readonly measurements: EifMeasurements
}

/**
 * A ramdisk begins at a multiple of four bytes (Linux,
 * driver-api/early-userspace/buffer-format.rst).
 */
const RAMDISK_ALIGNMENT_BYTES = 4

/**
 * Splits an image file into files in `folder`, as the hypervisor does, and measures the same bytes.
 * Throws EifError for a file that is not an image.
 */
export async function openBootFiles(eifPath: string, folder: string): Promise<BootFiles> {
  const { size } = await stat(eifPath)
  const { sections, measurements } = await measureEif(
    { sizeBytes: size, chunks: createReadStream(eifPath) },
    IMAGE_DIGESTS,
  )
  const kernelPath = join(folder, 'kernel')
  const ramdiskPath = join(folder, 'ramdisk')
  await using image = await open(eifPath)
  const readAll = async (kind: Section['kind']) => {
    const found = sections.filter((section) => section.kind === kind)
    return await Promise.all(found.map((section) => readSection(image, section)))
  }
  await writeFile(kernelPath, await readAll('kernel'))
  await writeFile(ramdiskPath, (await readAll('ramdisk')).map(padRamdisk))
  const cmdline = Buffer.concat(await readAll('cmdline')).toString('latin1')
  return { kernelPath, ramdiskPath, cmdline, measurements }
}

/** Adds zeros, so that another ramdisk can follow. */
export function padRamdisk(ramdisk: Uint8Array): Uint8Array {
  const padding = -ramdisk.length & (RAMDISK_ALIGNMENT_BYTES - 1)
  return Buffer.concat([ramdisk, new Uint8Array(padding)])
}

async function readSection(image: FileHandle, { offset, dataBytes }: Section): Promise<Uint8Array> {
  const data = new Uint8Array(dataBytes)
  let filled = 0
  while (filled < dataBytes) {
    const at = offset + EIF_SECTION_HEADER_BYTES + filled
    const { bytesRead } = await image.read(data, filled, dataBytes - filled, at)
    if (bytesRead === 0) throw new Error('the image file became shorter while it was read')
    filled += bytesRead
  }
  return data
}

export type SocketBridge = {
  close(): Promise<void>
}

/**
 * Opens a Unix socket at `path` and forwards its connections to `port` on 127.0.0.1. Only this user
 * may open the socket (0600). The socket's folder must be private too, because the mode is set a
 * moment after the socket is created. Use this only for development: every user of the computer can
 * connect to the port directly. Rejects when the socket cannot be created.
 */
export async function openSocketBridge({
  path,
  port,
}: {
  readonly path: string
  readonly port: number
}): Promise<SocketBridge> {
  const sockets = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket)
      socket.pipe(other)
      // Ignored: the other side sees that the connection is closed.
      socket.on('error', () => undefined)
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, resolve)
  })
  await chmod(path, 0o600)
  return {
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve))
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}
