import { once } from 'node:events'
import { connect } from 'node:net'

/**
 * What a command of a walk is in the page's shell: hands its arguments to the test, and prints and
 * exits as that says.
 */
const [socketPath = '', ...words] = process.argv.slice(2)
const socket = connect(socketPath)
socket.write(JSON.stringify(words))
let reply = ''
socket.setEncoding('utf8').on('data', (text: string) => {
  reply += text
})
await once(socket, 'end')
socket.end()
const { output, code } = JSON.parse(reply) as { readonly output: string; readonly code: number }
process.stdout.write(output)
process.exitCode = code
