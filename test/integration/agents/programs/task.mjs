import { appendFile, readFile, writeFile } from 'node:fs/promises'

/** A task of three tool calls in the file `name`: the model `demo/task` makes the calls that are written. */
export const taskFor = (name) =>
  `First write_file({"path":"${name}","text":"one"}), then append_file({"path":"${name}","text":" two"}), then read_file({"path":"${name}"}).`

/** The tools of the task, on the files of the current folder. */
export const TOOLS = {
  write_file: async ({ path, text }) => {
    await writeFile(path, text)
    return 'written'
  },
  append_file: async ({ path, text }) => {
    await appendFile(path, text)
    return 'appended'
  },
  read_file: ({ path }) => readFile(path, 'utf8'),
}

/** The members of each tool's input, which are texts. */
export const INPUTS = {
  write_file: ['path', 'text'],
  append_file: ['path', 'text'],
  read_file: ['path'],
}

/** The JSON schema of a tool's input. */
export const schemaOf = (name) => ({
  type: 'object',
  properties: Object.fromEntries(INPUTS[name].map((member) => [member, { type: 'string' }])),
  required: INPUTS[name],
  additionalProperties: false,
})

/** Runs one task in each way, one after the other. Each way works in a file with its own name. */
export async function runWays(ways) {
  for (const [name, work] of Object.entries(ways)) {
    const file = `${name}.txt`
    const said = await work(taskFor(file))
    const left = await readFile(file, 'utf8')
    process.stdout.write(`${JSON.stringify({ name, said, left })}\n`)
  }
}
