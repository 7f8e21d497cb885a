import { parseArgs } from 'node:util'
import { BuildError } from './build-error.ts'

type ImageCommand =
  | { readonly kind: 'build'; readonly options: ImageOptions }
  | { readonly kind: 'update_packages' }
  | { readonly kind: 'help' }

/** The builder reads the operator's files at these paths. */
export type ImageOptions = {
  readonly output: string
  readonly chainId: number
  /** 0x and 40 hex digits, lower case. */
  readonly contract: string
  readonly isDevelopment: boolean
  /** Limits of the enclave, by their variables. Others keep their defaults. */
  readonly limits: Readonly<Record<string, string>>
  /** JSON file with a provider table. Null: the built-in table. */
  readonly providersFile: string | null
  /** PEM file with CAs. Null: the CAs of the image's Node.js. */
  readonly caFile: string | null
  /** Folder with every .deb and .tgz file. Null: the files are fetched. */
  readonly packagesFolder: string | null
  /** The operator's own kernel with its command line. Null: Debian's kernel. */
  readonly kernel: { readonly file: string; readonly cmdlineFile: string } | null
  /** An init program like AWS's. Null: our init. */
  readonly initFile: string | null
  /** A driver for /dev/nsm. Null: the kernel has one, or a development image needs no driver. */
  readonly nsmModuleFile: string | null
  /** The key and the certificate that sign the image. Null: the image is not signed. */
  readonly signing: { readonly keyFile: string; readonly certificateFile: string } | null
}

export const IMAGE_USAGE = `npm run image -- --chain-id N --contract 0x… [options]

  --output DIR                  where the image goes (build/image)
  --chain-id N                  the chain that tree heads are signed for
  --contract ADDRESS            the anchor contract there
  --providers FILE              provider table (the built-in one)
  --ca FILE                     CAs for provider TLS, PEM (those of the image's Node.js)
  --set NAME=VALUE              a limit of the enclave, such as IDLE_TIMEOUT_MS (docs/settings.md)
  --development                 software NSM and a network in place of vsock: for qemu, refused in production
  --packages DIR                take all packages from here; nothing is fetched
  --kernel FILE --cmdline-file FILE
                                a kernel of your own (Debian's cloud kernel)
  --init FILE                   an init program of AWS's kind (enclave/image/guest/boot-init)
  --nsm-module FILE             a driver for /dev/nsm that is loaded at boot
  --signing-key FILE --signing-certificate FILE
                                sign the image (P-384, PEM): PCR8
  --update-packages             pin the newest Debian packages, build nothing
`

/**
 * Reads the arguments of `npm run image`. Throws BuildError `options` for the first wrong argument.
 */
export function parseImageOptions(words: readonly string[]): ImageCommand {
  const values = parseWords(words)
  if (values.help) return { kind: 'help' }
  if (values['update-packages']) return { kind: 'update_packages' }
  return {
    kind: 'build',
    options: {
      output: values.output ?? 'build/image',
      chainId: parseChainId(values['chain-id']),
      contract: parseContract(values.contract),
      isDevelopment: values.development ?? false,
      limits: parseLimits(values.set ?? []),
      providersFile: values.providers ?? null,
      caFile: values.ca ?? null,
      packagesFolder: values.packages ?? null,
      kernel: pair(values, 'kernel', 'cmdline-file', (file, cmdlineFile) => ({
        file,
        cmdlineFile,
      })),
      initFile: values.init ?? null,
      nsmModuleFile: values['nsm-module'] ?? null,
      signing: pair(values, 'signing-key', 'signing-certificate', (keyFile, certificateFile) => ({
        keyFile,
        certificateFile,
      })),
    },
  }
}

const TEXT = { type: 'string' } as const
const FLAG = { type: 'boolean' } as const
const LIST = { type: 'string', multiple: true } as const

const OPTIONS = {
  output: TEXT,
  'chain-id': TEXT,
  contract: TEXT,
  providers: TEXT,
  ca: TEXT,
  packages: TEXT,
  kernel: TEXT,
  'cmdline-file': TEXT,
  init: TEXT,
  'nsm-module': TEXT,
  'signing-key': TEXT,
  'signing-certificate': TEXT,
  set: LIST,
  development: FLAG,
  'update-packages': FLAG,
  help: FLAG,
} as const

type Values = ReturnType<typeof parseWords>
type TextName = {
  [Name in keyof typeof OPTIONS]: (typeof OPTIONS)[Name] extends typeof LIST
    ? never
    : (typeof OPTIONS)[Name] extends typeof TEXT
      ? Name
      : never
}[keyof typeof OPTIONS]

function parseWords(words: readonly string[]) {
  try {
    return parseArgs({ args: [...words], options: OPTIONS, strict: true }).values
  } catch (error) {
    throw wrong(error instanceof Error ? error.message : 'unreadable')
  }
}

/** Reads two options that must be given together. */
function pair<Value>(
  values: Values,
  first: TextName,
  second: TextName,
  join: (first: string, second: string) => Value,
): Value | null {
  const [one, other] = [values[first], values[second]]
  if (one === undefined && other === undefined) return null
  if (one === undefined || other === undefined)
    throw wrong(`--${first} and --${second} belong together`)
  return join(one, other)
}

function parseChainId(text: string | undefined): number {
  const value = text !== undefined && /^[1-9]\d{0,15}$/.test(text) ? Number(text) : 0
  if (!Number.isSafeInteger(value) || value < 1)
    throw wrong('--chain-id: expected a whole number from 1')
  return value
}

function parseContract(text: string | undefined): string {
  if (text === undefined || !/^0x[0-9a-fA-F]{40}$/.test(text))
    throw wrong('--contract: expected 0x and 40 hex digits')
  return text.toLowerCase()
}

/** Variables of the enclave that an image may set. All are measured. */
const LIMITS = [
  'CONNECT_TIMEOUT_MS',
  'FIRST_BYTE_TIMEOUT_MS',
  'IDLE_TIMEOUT_MS',
  'ANSWER_TIMEOUT_MS',
  'DRAIN_TIMEOUT_MS',
  'ANSWER_BYTES_MAX',
  'PENDING_BYTES_MAX',
]

function parseLimits(words: readonly string[]): Readonly<Record<string, string>> {
  const limits = new Map<string, string>()
  for (const word of words) {
    const [, name = '', value = ''] = /^([A-Z_]+)=(\d+)$/.exec(word) ?? []
    if (!LIMITS.includes(name) || limits.has(name))
      throw wrong(`--set: expected one of ${LIMITS.join(', ')}, once, and a whole number`)
    limits.set(name, value)
  }
  return Object.fromEntries([...limits].toSorted())
}

function wrong(message: string): BuildError {
  return new BuildError('options', message)
}
