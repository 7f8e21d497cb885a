import { type Command, InvalidArgumentError } from 'commander'
import { EXIT_CODES } from '../faults.ts'
import { POLICY_HELP, parseRpcUrl } from '../options.ts'
import type { ProxyCommandOptions } from '../proxy/run-proxy.ts'

const PORT_DEFAULT = 8787

/**
 * Exit code: 0 after a stop, 1 if no enclave or no provider passes the checks, 2 for wrong usage.
 */
export function registerProxy(program: Command): void {
  program
    .command('proxy')
    .summary('serve checked answers to every program on this machine')
    .description(
      "Serve OpenAI's chat completions and Responses and Anthropic's Messages on this machine, " +
        'and complete only checked answers. Any program that takes a base URL can call it, with ' +
        'its own API key of the gateway. Calls are encrypted to an enclave that the policy accepts. The pieces ' +
        'of a stream are passed on before the checks, its end after them: a stream without its ' +
        'end was not checked. --hold holds all of it back. When an answer is refused, the error ' +
        'names the failed check.',
    )
    .requiredOption('--url <url>', "the gateway's URL")
    .requiredOption(
      '--policy <file>',
      `${POLICY_HELP}. If it has providers, calls are sent only to a provider in a TEE that it ` +
        'accepts: the provider is verified before the call leaves, by evidence that the gateway ' +
        'passes on',
    )
    .option(
      '--rpc <url>',
      'JSON-RPC endpoint of the chain, with providers in the policy: shows how old the evidence is',
      parseRpcUrl,
    )
    .option('--port <port>', 'port on 127.0.0.1; 0 for any free port', parsePort, PORT_DEFAULT)
    .option(
      '--save <folder>',
      'keep the proof of each call in a file there, for `affidavit verify`',
    )
    .option(
      '--session <file>',
      'tie all calls into one session, the run of an agent, and keep it in this file, for ' +
        '`affidavit verify`. Calls are then made one after the other. The session belongs to the ' +
        'first API key that has a checked call; calls with other keys are answered outside of the ' +
        'session, with the header `affidavit-session: outside`. A call of the owner with the header ' +
        '`affidavit-last: true` ends the session; without it, the file does not show that no ' +
        'calls followed. The same file again continues a session that has not ended, as long ' +
        'as FILE.calls is beside it',
    )
    .option(
      '--token',
      'put a secret segment into the base URL, a new one at each start: only programs that get ' +
        'this URL from you can use the proxy',
    )
    .option('--hold', 'hold back each stream until it was checked completely')
    .option('--no-encrypt', 'let the gateway read the calls')
    .addHelpText(
      'after',
      '\nIt prints a line for each call. Exit codes: 0 stopped, 1 no enclave or no provider is ' +
        'accepted, 2 usage, 3 the gateway was not reached.',
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
