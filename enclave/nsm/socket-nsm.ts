import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { encodeFrame, NSM_RESPONSE_BYTES_MAX, readFrames } from '../protocol/nsm-wire.ts'
import { createNsmClient, type Nsm, NsmError } from './nsm.ts'

/**
 * Opens the software security module on the Unix socket at `path`, with the same messages as the
 * device. It is only for development. Each connection is a new boot of the module. After a lost
 * connection, every later call fails. Throws NsmError Unavailable when no process listens. Does NOT
 * protect anything: the user who runs the module has its keys and sets its measurements.
 */
export async function openSocketNsm(path: string): Promise<Nsm> {
  const socket = connect(path)
  try {
    await once(socket, 'connect')
  } catch (error) {
    throw unavailable(error)
  }
  // The next call reports that the connection is lost.
  socket.on('error', () => undefined)
  return createNsmClient('software', {
    exchange: createExchange(socket),
    close: () => socket.destroy(),
  })
}

function createExchange(socket: Socket): (request: Uint8Array) => Promise<Uint8Array> {
  const answers = readFrames(socket, NSM_RESPONSE_BYTES_MAX)
  return async (request) => {
    socket.write(encodeFrame(request))
    const answer = await answers.next().catch((error: unknown) => {
      throw unavailable(error)
    })
    if (answer.value === undefined) throw unavailable(new Error('it closed the connection'))
    return answer.value
  }
}

function unavailable(cause: unknown): NsmError {
  const reason = cause instanceof Error ? cause.message : 'unknown'
  return new NsmError('Unavailable', `cannot reach the software security module: ${reason}`, {
    cause,
  })
}
