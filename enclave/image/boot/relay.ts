import { connect, Socket } from 'node:net'

/**
 * A program of its own: `node relay.ts PORT`, with a socket as its standard input. qemu runs one for each connection that the
 * guest makes to the one address it has, and so the guest reaches this port of this machine, and no other.
 */
const guest = new Socket({ fd: 0, readable: true, writable: true, allowHalfOpen: true })
const provider = connect({ host: '127.0.0.1', port: Number(process.argv[2]), allowHalfOpen: true })
for (const socket of [guest, provider]) socket.on('error', () => process.exit(1))
guest.pipe(provider)
provider.pipe(guest)
