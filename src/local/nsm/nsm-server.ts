import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { chmod } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { encodeFrame, NSM_REQUEST_BYTES_MAX, readFrames } from '#enclave/protocol/nsm-wire.ts'
import { openDevelopmentRoot, rootCertificateFile } from './development-root.ts'
import type { SourceMeasurements } from './measured-source.ts'
import { bootSecurityModule } from './security-module.ts'

export type NsmServer = {
  readonly socketPath: string
  /** Root certificate of the module's documents. */
  readonly rootFile: string
  close(): Promise<void>
}

/**
 * Serves software security modules on a Unix socket (mode 0600). The socket replaces an existing
 * file. The length of a message is sent before the message. Each connection boots its own module,
 * which ends with the connection. Throws SoftwareNsmError.
 */
export async function serveSoftwareNsm(options: {
  readonly socketPath: string
  readonly rootFile: string
  readonly measurements?: SourceMeasurements | null
}): Promise<NsmServer> {
  const { socketPath, rootFile, measurements = null } = options
  // Makes the root now: the first enclave needs its certificate, and the caller gets any error.
  await openDevelopmentRoot(rootFile, Date.now())
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
    serveEnclave(socket, { rootFile, measurements }).catch((error: unknown) =>
      socket.destroy(asError(error)),
    )
  })
  rmSync(socketPath, { force: true })
  server.listen(socketPath)
  await once(server, 'listening')
  await chmod(socketPath, 0o600)
  return {
    socketPath,
    rootFile: rootCertificateFile(rootFile),
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

async function serveEnclave(
  socket: Socket,
  boot: { readonly rootFile: string; readonly measurements: SourceMeasurements | null },
): Promise<void> {
  const module = await bootSecurityModule({ ...boot, now: Date.now })
  // The module itself answers a request above its limit. A request above four times the limit ends
  // the connection.
  for await (const request of readFrames(socket, 4 * NSM_REQUEST_BYTES_MAX))
    socket.write(encodeFrame(module.processRequest(request)))
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error('unknown')
}
