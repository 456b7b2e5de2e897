// The camera: what it sees, and a picture of that.

import { byId } from "./elements.js";

const PROBLEMS = {
  NotAllowedError: "The camera is not allowed. Allow it in the settings of "
    + "the browser, or choose a file.",
  NotFoundError: "There is no camera. Choose a file instead.",
  NotReadableError: "The camera is in use by another program. Close that, or "
    + "choose a file.",
};

const button = byId("camera");
const shoot = byId("shoot");
const video = byId("video");
let stream = null;

const show = (isOn) => {
  video.hidden = !isOn;
  shoot.hidden = !isOn;
  button.textContent = isOn ? "Stop the camera" : "Use the camera";
  byId("drop").classList.toggle("live", isOn);
};

export const stopCamera = () => {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  video.srcObject = null;
  show(false);
};

const start = async () => {
  // Browsers give cameras to pages of this machine and of https alone.
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new Error("The browser does not let this page use the camera, "
      + "which needs https, or the address 127.0.0.1. Choose a file instead.");
  }
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      video: { facingMode: "environment" },
    });
  } catch (error) {
    throw new Error(PROBLEMS[error.name]
      ?? "The camera cannot be used. Choose a file instead.");
  }
  video.srcObject = stream;
  show(true);
  await video.play();
  shoot.focus();
};

const take = () => new Promise((resolve, reject) => {
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  if (!canvas.width) {
    reject(new Error("The camera shows nothing yet. Try again."));
    return;
  }
  canvas.getContext("2d").drawImage(video, 0, 0);
  canvas.toBlob((blob) => resolve(new File([blob], "camera.jpg")),
    "image/jpeg", 0.92);
});

// `onPicture` gets a file, and `onProblem` what went wrong.
export const setUpCamera = (onPicture, onProblem) => {
  button.addEventListener("click", async () => {
    if (stream) {
      stopCamera();
      return;
    }
    button.disabled = true;
    try {
      await start();
    } catch (error) {
      stopCamera();
      onProblem(error.message);
    } finally {
      button.disabled = false;
    }
    if (!stream) button.focus();
  });
  shoot.addEventListener("click", async () => {
    try {
      const file = await take();
      stopCamera();
      button.focus();
      onPicture(file);
    } catch (error) {
      onProblem(error.message);
    }
  });
};
