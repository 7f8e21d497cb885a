import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { passOn } from './pass-on.ts'

/*
 * Runs in a namespace: passes the connections to a port on to a socket in the file system, and runs
 * a program meanwhile. Ends as the program does.
 */
const [path = '', port = '', command = '', ...words] = process.argv.slice(2)
await passOn({ host: '127.0.0.1', port: Number(port) }, { path })
const child = spawn(command, words, { stdio: 'inherit' })
process.on('SIGTERM', () => child.kill('SIGTERM'))
const [code] = await once(child, 'exit')
process.exit(code ?? 1)
