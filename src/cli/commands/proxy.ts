import { type Command, InvalidArgumentError } from 'commander'
import { EXIT_CODES } from '../faults.ts'
import type { ProxyCommandOptions } from '../proxy/run-proxy.ts'

const PORT_DEFAULT = 8787

/**
 * Adds `proxy`. It runs until it is stopped. Exit code 0 when it was; 1 when no enclave holds; 2
 * for usage.
 */
export function registerProxy(program: Command): void {
  program
    .command('proxy')
    .summary('give every program checked answers, by a base URL of this machine')
    .description(
      "Serve OpenAI's chat completions on this machine, and give out answers that were checked, and no others. " +
        'Any program in any language that takes a base URL can call it, with its own API key of the gateway. ' +
        'Calls are encrypted to an enclave that is expected. What is refused is an error that names the check.',
    )
    .requiredOption('--url <url>', "the gateway's URL")
    .requiredOption(
      '--expect <file>',
      'which enclaves are acceptable, as the client takes it (JSON); never from the gateway',
    )
    .option('--port <port>', 'port of 127.0.0.1; 0 for any', parsePort, PORT_DEFAULT)
    .option(
      '--save <folder>',
      'keep the proof of each call in a file there, and the list of the calls in another, for `affidavit verify`',
    )
    .option('--hold', 'give nothing of a stream before all of it was checked')
    .option('--no-encrypt', 'let the gateway read the calls')
    .addHelpText(
      'after',
      '\nIt prints a line for each call. Exit codes: 0 stopped, 1 no enclave is an expected one, 2 usage, 3 the gateway was not reached.',
    )
    .action(async (options: ProxyCommandOptions) => {
      const { runProxy } = await import('../proxy/run-proxy.ts')
      await runProxy(options)
      process.exitCode = EXIT_CODES.done
    })
}

function parsePort(text: string): number {
  const port = Number(text)
  if (!/^\d{1,5}$/.test(text) || port > 65_535)
    throw new InvalidArgumentError('expected a port from 0 to 65535')
  return port
}
