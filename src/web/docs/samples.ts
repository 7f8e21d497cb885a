export type SampleCall = {
  /** `https://gateway.example/v1/models?limit=1`. */
  readonly url: string
  readonly method: string
  readonly hasKey: boolean
  /** Without the key and the content type of the body. */
  readonly headers: Readonly<Record<string, string>>
  /** JSON text. Null when the call has no body. */
  readonly body: string | null
  /**
   * The names of the form's files, and the values of its other parts. Null when the call has no
   * form.
   */
  readonly form: { readonly files: readonly string[]; readonly fields: Fields } | null
}

type Fields = Readonly<Record<string, string>>

export const LANGUAGES = ['curl', 'Node', 'Python'] as const
export type Language = (typeof LANGUAGES)[number]

/**
 * Returns code that runs without changes, with the key from AFFIDAVIT_API_KEY. Each text in the
 * call is quoted as the language requires.
 */
export function writeSample(language: Language, call: SampleCall): string {
  return WRITERS[language](call)
}

const WRITERS: Readonly<Record<Language, (call: SampleCall) => string>> = {
  curl({ url, method, hasKey, headers, body, form }) {
    const lines = [
      // With -g, curl does not treat brackets in a URL as patterns.
      `curl -g${method === 'GET' ? '' : ` -X ${method}`} ${quoteShell(url)}`,
      ...(hasKey ? ['-H "authorization: Bearer $AFFIDAVIT_API_KEY"'] : []),
      ...headersOf(headers, body).map(([name, value]) => `-H ${quoteShell(`${name}: ${value}`)}`),
      ...(body === null ? [] : [`--data-raw ${quoteShell(body)}`]),
      ...(form === null
        ? []
        : [
            ...form.files.map((name) => `-F ${quoteShell(`${name}=@${name}.png`)}`),
            ...Object.entries(form.fields).map(
              ([name, value]) => `--form-string ${quoteShell(`${name}=${value}`)}`,
            ),
          ]),
    ]
    return lines.join(' \\\n  ')
  },

  Node({ url, method, hasKey, headers, body, form }) {
    const given = [
      ...(hasKey ? [`    authorization: \`Bearer \${process.env.AFFIDAVIT_API_KEY}\`,`] : []),
      ...headersOf(headers, body).map(
        ([name, value]) => `    ${quoteJson(name)}: ${quoteJson(value)},`,
      ),
    ]
    const options = [
      ...(method === 'GET' ? [] : [`  method: ${quoteJson(method)},`]),
      ...(given.length === 0 ? [] : ['  headers: {', ...given, '  },']),
      ...(body === null ? [] : [`  body: JSON.stringify(${escapeLineEnds(indent(body, 2))}),`]),
      ...(form === null ? [] : ['  body: form,']),
    ]
    return [
      ...(form === null
        ? []
        : [
            "import { openAsBlob } from 'node:fs'",
            '',
            'const form = new FormData()',
            ...form.files.map(
              (name) =>
                `form.append(${quoteJson(name)}, await openAsBlob(${quoteJson(`${name}.png`)}, { type: 'image/png' }), ${quoteJson(`${name}.png`)})`,
            ),
            ...Object.entries(form.fields).map(
              ([name, value]) => `form.append(${quoteJson(name)}, ${quoteJson(value)})`,
            ),
          ]),
      options.length === 0
        ? `const response = await fetch(${quoteJson(url)})`
        : `const response = await fetch(${quoteJson(url)}, {\n${options.join('\n')}\n})`,
      'console.log(response.status, await response.text())',
    ].join('\n')
  },

  Python({ url, method, hasKey, headers, body, form }) {
    const given = [
      ...(hasKey
        ? ["        'authorization': f\"Bearer {os.environ['AFFIDAVIT_API_KEY']}\","]
        : []),
      ...headersOf(headers, body).map(
        ([name, value]) => `        ${quoteJson(name)}: ${quoteJson(value)},`,
      ),
    ]
    return [
      ...(hasKey ? ['import os', ''] : []),
      'import requests',
      '',
      'response = requests.request(',
      `    ${quoteJson(method)},`,
      `    ${quoteJson(url)},`,
      ...(given.length === 0 ? [] : ['    headers={', ...given, '    },']),
      // The body is a string, because Python has different words for JSON's true, false and null.
      ...(body === null ? [] : [`    data=${quoteJson(body)}.encode(),`]),
      ...(form === null
        ? []
        : [
            '    files={',
            ...form.files.map(
              (name) =>
                `        ${quoteJson(name)}: (${quoteJson(`${name}.png`)}, open(${quoteJson(`${name}.png`)}, 'rb'), 'image/png'),`,
            ),
            '    },',
            '    data={',
            ...Object.entries(form.fields).map(
              ([name, value]) => `        ${quoteJson(name)}: ${quoteJson(value)},`,
            ),
            '    },',
          ]),
      ')',
      'print(response.status_code, response.text)',
    ].join('\n')
  },
}

function headersOf(
  headers: SampleCall['headers'],
  body: string | null,
): readonly (readonly [string, string])[] {
  return [
    ...(body === null ? [] : ([['content-type', 'application/json']] as const)),
    ...Object.entries(headers),
  ]
}

/** Within single quotes, only a single quote is special. */
function quoteShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

/** JSON, JavaScript and Python share these escapes, except the escape of a lone surrogate. */
function quoteJson(text: string): string {
  return escapeLineEnds(JSON.stringify(text))
}

/**
 * At these two characters, editors and older JavaScript engines end the line. JSON strings may
 * contain them unescaped.
 */
function escapeLineEnds(json: string): string {
  return json.replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')
}

function indent(text: string, by: number): string {
  return text.replaceAll('\n', `\n${' '.repeat(by)}`)
}
