import { connect, Socket } from 'node:net'

/**
 * A program of its own: `node relay.ts PORT` or `node relay.ts SOCKET`, with a socket as its
 * standard input. qemu runs one for each connection that the guest makes to the one address it has,
 * and so the guest reaches what is named here on this machine, and nothing else.
 */
const guest = new Socket({ fd: 0, readable: true, writable: true, allowHalfOpen: true })
const [target = ''] = process.argv.slice(2)
const address = /^\d+$/.test(target)
  ? { host: '127.0.0.1', port: Number(target) }
  : { path: target }
const host = connect({ ...address, allowHalfOpen: true })
for (const socket of [guest, host]) socket.on('error', () => process.exit(1))
guest.pipe(host)
host.pipe(guest)
