// Stands before fake-gcs-server, which lacks the uploads of Google's XML API that object_store makes, and makes them uploads of the JSON
// API. Preconditions, objects, listings, reads and deletes are the server's own; parts of an upload are kept here until it is completed.
//
//   node gcs_xml.js PORT SERVER_PORT
const http = require("http");
const [port, serverPort] = process.argv.slice(2).map(Number);

const uploads = new Map();
let nextUpload = 1;

const body = request => new Promise((done, failed) => {
    const chunks = [];
    request.on("data", chunk => chunks.push(chunk)).on("end", () => done(Buffer.concat(chunks))).on("error", failed);
});

function ask(method, path, headers, content) {
    return new Promise((done, failed) => {
        const asked = http.request({ host: "127.0.0.1", port: serverPort, method, path, headers }, done);
        asked.on("error", failed);
        asked.end(content);
    });
}

/// Stores an object, on the condition that the client gave.
async function store(request, answer, [bucket, name], content) {
    const query = new URLSearchParams({ uploadType: "media", name });
    const generation = request.headers["x-goog-if-generation-match"];
    if (generation !== undefined) query.set("ifGenerationMatch", generation);
    const headers = { "content-type": "application/octet-stream", "content-length": content.length };
    const stored = await ask("POST", `/upload/storage/v1/b/${bucket}/o?${query}`, headers, content);
    const said = await body(stored);
    if (stored.statusCode !== 200) {
        answer.writeHead(stored.statusCode).end(said);
        return undefined;
    }
    const object = JSON.parse(said);
    return { etag: `"${object.etag}"`, "x-goog-generation": object.generation };
}

async function serve(request, answer) {
    const url = new URL(request.url, "http://here");
    const [, bucket, ...rest] = url.pathname.split("/");
    const object = [bucket, decodeURIComponent(rest.join("/"))];
    const upload = url.searchParams.get("uploadId");
    const content = await body(request);
    if (request.method === "POST" && url.searchParams.has("uploads")) {
        const id = String(nextUpload++);
        uploads.set(id, new Map());
        const text = `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`;
        return answer.writeHead(200).end(text);
    }
    if (upload !== null && !uploads.has(upload)) return answer.writeHead(404).end();
    if (upload !== null && request.method === "PUT") {
        const number = Number(url.searchParams.get("partNumber"));
        uploads.get(upload).set(number, content);
        return answer.writeHead(200, { etag: `"${upload}-${number}"` }).end();
    }
    if (upload !== null && request.method === "POST") {
        const numbers = [...content.toString().matchAll(/<PartNumber>(\d+)<\/PartNumber>/g)].map(found => Number(found[1]));
        const parts = numbers.map(number => uploads.get(upload).get(number));
        if (parts.includes(undefined)) return answer.writeHead(400).end("a part that was never uploaded");
        uploads.delete(upload);
        const stored = await store(request, answer, object, Buffer.concat(parts));
        const text = stored && `<CompleteMultipartUploadResult><ETag>${stored.etag}</ETag></CompleteMultipartUploadResult>`;
        return stored && answer.writeHead(200, stored).end(text);
    }
    if (upload !== null) {
        uploads.delete(upload);
        return answer.writeHead(204).end();
    }
    if (request.method === "PUT") {
        const stored = await store(request, answer, object, content);
        return stored && answer.writeHead(200, stored).end();
    }
    const passed = await ask(request.method, request.url, request.headers, content);
    answer.writeHead(passed.statusCode, passed.headers);
    passed.pipe(answer);
}

http.createServer((request, answer) => {
    serve(request, answer).catch(error => answer.headersSent ? answer.destroy() : answer.writeHead(502).end(String(error)));
}).listen(port, "127.0.0.1");
