import { ConfigError, type EnclaveConfig, readConfig } from './config.ts'
import { startEnclave } from './enclave.ts'
import { SocketError } from './listen-socket.ts'
import { createEventLog, describeError, formatLine } from './logger.ts'
import { openDeviceNsm } from './nsm/device-nsm.ts'
import { type Nsm, NsmError } from './nsm/nsm.ts'
import { openSocketNsm } from './nsm/socket-nsm.ts'
import { openStandardError } from './protocol/line-writer.ts'

/**
 * The enclave process: see README.md in this folder. It writes only the ready line to standard
 * output, and its log to standard error, one JSON object per line. Exit codes: 0 after SIGTERM or
 * SIGINT, 1 otherwise.
 */
const lines = openStandardError({
  describeDropped: (lines) => formatLine(Date.now(), 'warn', 'log lines dropped', { lines }),
})
const log = createEventLog(lines.write, Date.now)
// Ignored: the parent process reads only one line, and can end first.
process.stdout.on('error', () => undefined)

// An enclave in an unknown state must not sign. A dead process is detected and replaced.
process.on('uncaughtException', (error) => die('uncaught exception', error))
process.on('unhandledRejection', (error) => die('unhandled rejection', error))
// The gateway that started this enclave over a channel has ended. The next gateway starts its own
// enclave.
process.on('disconnect', () => die('gateway gone', null))
if (process.connected === false) die('gateway gone', null)

await run().catch((error: unknown) => die('not started', error))

async function run(): Promise<void> {
  const config = readConfig()
  const nsm = await openNsm(config)
  const enclave = await startEnclave(config, {
    nsm,
    now: Date.now,
    monotonic: () => performance.now(),
    log,
  })
  const { notary, publicKey } = enclave
  const ready = {
    event: 'ready',
    socket: config.socketPath,
    notary,
    public_key: publicKey,
    nsm: nsm.kind,
    pid: process.pid,
  }
  process.stdout.write(`${JSON.stringify(ready)}\n`)
  log('info', 'ready', { notary, nsm: nsm.kind })

  let isStopping = false
  const stop = async (signal: string) => {
    if (isStopping) return
    isStopping = true
    log('info', 'stopping', { signal })
    const { unacknowledged } = await enclave.stop(config.shutdownGraceMs)
    log(unacknowledged > 0 ? 'warn' : 'info', 'stopped', { unacknowledged })
    process.exit(0)
  }
  process.on('SIGTERM', () => stop('SIGTERM'))
  process.on('SIGINT', () => stop('SIGINT'))
}

/** `nsmSocket` is set only with NSM=software. Production refuses both. */
function openNsm({ nsmSocket }: EnclaveConfig): Promise<Nsm> {
  return nsmSocket === null ? openDeviceNsm() : openSocketNsm(nsmSocket)
}

function die(event: string, error: unknown): never {
  if (error instanceof ConfigError)
    for (const fault of error.faults) log('error', 'configuration', { fault })
  // The messages of our own errors state what to correct.
  else if (error instanceof SocketError || error instanceof NsmError)
    log('error', event, { code: error.code, message: error.message })
  else log('error', event, error === null ? {} : describeError(error))
  process.exit(1)
}
